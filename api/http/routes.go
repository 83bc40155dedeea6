package httpapi

import "net/http"

const (
	get    = http.MethodGet
	put    = http.MethodPut
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

// routes is every route there is. GET routes answer HEAD too.
func (s *server) routes() []route {
	return append([]route{
		{get, "/v1/channels", s.listChannels, listChannelsDoc},
		{put, "/v1/channels/{name}", s.declareChannel, declareChannelDoc},
		{get, "/v1/channels/{name}", s.getChannel, getChannelDoc},
		{patch, "/v1/channels/{name}", s.alterChannel, alterChannelDoc},
		{remove, "/v1/channels/{name}", s.deleteChannel, deleteChannelDoc},

		{put, "/v1/links", s.declareLink, declareLinkDoc},
		{get, "/v1/links", s.listLinks, listLinksDoc},
		{get, "/v1/links/{id}", s.getLink, getLinkDoc},
		{patch, "/v1/links/{id}", s.alterLink, alterLinkDoc},
		{remove, "/v1/links/{id}", s.deleteLink, deleteLinkDoc},

		{post, "/v1/channels/{name}/messages", s.publish, publishDoc},

		{post, "/v1/queues/{name}/poll", s.poll, pollDoc},
		{get, "/v1/queues/{name}/consume", s.consume, consumeDoc},
		{post, "/v1/queues/{name}/ack", s.ack, ackDoc},
		{post, "/v1/queues/{name}/nack", s.nack, nackDoc},
		{post, "/v1/queues/{name}/extend", s.extend, extendDoc},
		{post, "/v1/queues/{name}/release", s.release, releaseDoc},
		{post, "/v1/queues/{name}/purge", s.purge, purgeDoc},
		{get, "/v1/queues/{name}/messages", s.peek, peekDoc},
		{get, "/v1/queues/{name}/dead-letters", s.listDeadLetters, listDeadLettersDoc},
		{post, "/v1/queues/{name}/dead-letters/recover", s.recoverDeadLetters, recoverDoc},
		{post, "/v1/queues/{name}/dead-letters/purge", s.purgeDeadLetters, purgeDeadLettersDoc},

		{get, "/v1/streams/{name}/messages", s.readStream, readStreamDoc},
		{get, "/v1/streams/{name}/subscribe", s.subscribe, subscribeDoc},
		{get, "/v1/streams/{name}/points", s.listPoints, listPointsDoc},
		{put, "/v1/streams/{name}/points/{point}", s.declarePoint, declarePointDoc},
		{get, "/v1/streams/{name}/points/{point}", s.getPoint, getPointDoc},
		{remove, "/v1/streams/{name}/points/{point}", s.deletePoint, deletePointDoc},
		{post, "/v1/streams/{name}/points/{point}/commit", s.commitPoint, commitPointDoc},
		{post, "/v1/streams/{name}/points/{point}/reset", s.resetPoint, resetPointDoc},

		{get, "/v1/relays", s.listRelays, listRelaysDoc},
		{put, "/v1/relays/{name}", s.declareRelay, declareRelayDoc},
		{get, "/v1/relays/{name}", s.getRelay, getRelayDoc},
		{remove, "/v1/relays/{name}", s.deleteRelay, deleteRelayDoc},
		{post, "/v1/relays/{name}/skip", s.skipRelay, skipRelayDoc},

		{get, "/v1/circuits", s.listCircuits, listCircuitsDoc},
		{post, "/v1/queues/{name}/circuits/open", s.openCircuit, openCircuitDoc},
		{post, "/v1/queues/{name}/circuits/close", s.closeCircuit, closeCircuitDoc},
		{post, "/v1/queues/{name}/circuits/{routingKey}/open", s.openCircuit, openCircuitOfDoc},
		{post, "/v1/queues/{name}/circuits/{routingKey}/close", s.closeCircuit, closeCircuitOfDoc},

		{get, "/v1/messages/{id}", s.getMessage, getMessageDoc},
		{get, "/v1/messages/{id}/history", s.getHistory, getHistoryDoc},
		{get, "/v1/messages/{id}/lineage", s.getLineage, getLineageDoc},
		{get, "/v1/events", s.listEvents, listEventsDoc},

		{post, "/v1/replays", s.republish, republishDoc},
		{get, "/v1/replays", s.listReplays, listReplaysDoc},
		{get, "/v1/replays/{id}", s.getReplay, getReplayDoc},
		{post, "/v1/replays/{id}/resume", s.resumeReplay, resumeReplayDoc},

		{get, "/v1/log", s.getLog, getLogDoc},
		{post, "/v1/log/seal", s.seal, sealDoc},
		{post, "/v1/log/archived", s.noteArchive, noteArchiveDoc},
		{post, "/v1/log/verify", s.verifyLog, verifyLogDoc},

		{get, "/v1/stats", s.getStatistics, getStatisticsDoc},
		{get, "/v1/consumers", s.listConsumers, listConsumersDoc},
		{get, "/v1/failures", s.listFailures, listFailuresDoc},
		{get, "/v1/projections", s.listProjections, listProjectionsDoc},
		{post, "/v1/projections/{name}/stop", s.turn(Async.Stop), stopProjectionDoc},
		{post, "/v1/projections/{name}/start", s.turn(Async.Start), startProjectionDoc},
		{post, "/v1/projections/{name}/rebuild", s.rebuildProjection, rebuildProjectionDoc},
		{post, "/v1/projections/{name}/retry", s.turn(Async.Retry), retryProjectionDoc},
		{post, "/v1/projections/{name}/skip", s.turn(Async.Skip), skipProjectionDoc},
	}, s.ownRoutes()...)
}

// ownRoutes are those about the broker itself.
func (s *server) ownRoutes() []route {
	return []route{
		{get, "/v1/status", s.getStatus, getStatusDoc},
		{post, "/v1/projections/verify", s.verify, verifyDoc},
		{post, "/v1/projections/rebuild", s.rebuild, rebuildDoc},

		{get, "/healthz", s.live, healthDoc("healthz")},
		{get, "/livez", s.live, healthDoc("livez")},
		{get, "/readyz", s.ready, readyDoc},
		{get, "/openapi.json", s.openAPI, openAPIDoc},
	}
}
