package httpapi

import "github.com/gin-gonic/gin"

// GinRoutes are the routes that gin really has.
func GinRoutes() gin.RoutesInfo { return (&server{}).engine().Routes() }
