package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"leat/api"
)

var openAPIDoc = operation{
	id: "openapi", summary: "This document",
	answers: ok[map[string]any]("OpenAPI 3.1."),
}

func (s *server) openAPI(c *call) error {
	c.write(http.StatusOK, jsonType, s.document)
	return nil
}

// document writes the OpenAPI document of the routes. The schemas come from the
// wire types.
func document(version string, routes []route) []byte {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:       "Leat",
			Version:     version,
			Description: "An event-sourced message broker on PostgreSQL.",
		},
		Components: &huma.Components{Schemas: registry},
	}
	for _, r := range routes {
		doc.AddOperation(r.document(registry))
	}
	data, err := doc.MarshalJSON()
	if err != nil {
		panic(fmt.Errorf("write the OpenAPI document: %w", err)) // the routes are constants: a test finds it
	}
	return data
}

func (r route) document(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		OperationID: r.op.id,
		Method:      r.method,
		Path:        r.path,
		Summary:     r.op.summary,
		Description: r.op.about,
		Tags:        []string{tagOf(r.path)},
		Parameters:  r.parameters(registry),
		Responses:   map[string]*huma.Response{},
	}
	if len(r.op.bodies) > 0 {
		op.RequestBody = &huma.RequestBody{Required: !r.op.bodies[0].optional, Content: map[string]*huma.MediaType{}}
	}
	for _, frame := range r.op.frames {
		registry.Schema(frame, true, "") // a component, which the description names
	}
	for _, b := range r.op.bodies {
		op.RequestBody.Content[b.contentType] = &huma.MediaType{Schema: schemaOf(registry, b.of)}
	}
	for _, a := range r.op.answers {
		status := strconv.Itoa(a.status)
		response := op.Responses[status]
		if response == nil {
			response = &huma.Response{Description: a.doc, Content: map[string]*huma.MediaType{}}
			op.Responses[status] = response
		}
		if a.contentType != "" {
			response.Content[a.contentType] = &huma.MediaType{Schema: schemaOf(registry, a.of)}
		}
	}
	op.Responses["default"] = &huma.Response{
		Description: "Refused. The code says why: " + strings.Join(codes(), ", ") + ".",
		Content:     map[string]*huma.MediaType{api.ContentProblem: {Schema: schemaOf(registry, reflect.TypeFor[api.Problem]())}},
	}
	return op
}

// tagOf groups operations by the noun of their path.
func tagOf(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		noun, _, _ := strings.Cut(rest, "/")
		return noun
	}
	return "server"
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

func (r route) parameters(registry huma.Registry) (list []*huma.Param) {
	for _, match := range pathParameter.FindAllStringSubmatch(r.path, -1) {
		of := reflect.TypeFor[string]()
		if match[1] == "id" {
			of = reflect.TypeFor[int64]()
		}
		list = append(list, &huma.Param{Name: match[1], In: "path", Required: true, Schema: schemaOf(registry, of)})
	}
	for _, p := range r.op.query {
		list = append(list, p.document(registry, "query"))
	}
	for _, p := range r.op.headers {
		list = append(list, p.document(registry, "header"))
	}
	return append(list, parameter{"Leat-Client", reflect.TypeFor[string](), "who calls, for the log; default the remote host"}.
		document(registry, "header"))
}

func (p parameter) document(registry huma.Registry, in string) *huma.Param {
	return &huma.Param{Name: p.name, In: in, Description: p.doc, Schema: schemaOf(registry, p.of)}
}

// schemaOf is the schema of a wire type; no type is any bytes.
func schemaOf(registry huma.Registry, of reflect.Type) *huma.Schema {
	if of == nil {
		return &huma.Schema{}
	}
	return registry.Schema(of, true, "Empty")
}

func codes() (list []string) {
	for _, code := range slices.Sorted(maps.Keys(api.Codes())) {
		list = append(list, string(code))
	}
	return list
}
