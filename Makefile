# make help lists what there is.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Versions of the tools for checks. They are built from source into bin/tools.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOFUMPT       := mvdan.cc/gofumpt@v0.12.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOLS   := $(CURDIR)/bin/tools

# Arguments of leat serve, for example: make run ARGS='--listen 127.0.0.1:9000'
ARGS ?=

# Flags and packages of go test, for example: make test TESTFLAGS=-v PKG=./commands
TESTFLAGS ?= -timeout=8m
PKG       ?= ./...

# The race detector needs a C compiler.
RACE := $(shell command -v $${CC:-cc} >/dev/null 2>&1 && echo -race)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z\/-]*:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: postgres build ## start a broker on ./data with a PostgreSQL of its own
	@exec bin/leat serve $(ARGS)

.PHONY: build
build: ## build bin/leat
	@go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/leat ./cmd/leat

.PHONY: postgres
postgres: ## install the PostgreSQL server programs if there are none
	@.ci/postgres

.PHONY: wal2json
wal2json: postgres
	@.ci/wal2json

.PHONY: test
test: wal2json ## run all tests, with the race detector
	go test $(RACE) $(TESTFLAGS) $(PKG)

.PHONY: bench
bench: postgres ## run the benchmarks
	go test -run '^$$' -bench . -benchmem $(PKG)

.PHONY: lint
lint: tools/gofumpt tools/golangci-lint ## check the code without running it
	go vet ./...
	@test -z "$$($(TOOLS)/gofumpt -l . | tee /dev/stderr)"
	$(TOOLS)/golangci-lint run

.PHONY: fmt
fmt: tools/golangci-lint ## format the code
	$(TOOLS)/golangci-lint fmt

.PHONY: ci
ci: ## run what CI runs
	.ci/run

.PHONY: clean
clean: ## remove what was built; data stays
	rm -rf bin
	go clean -testcache

# A tool is built once for each version of it.
.PHONY: tools/gofumpt tools/golangci-lint
tools/gofumpt: TOOL = $(GOFUMPT)
tools/golangci-lint: TOOL = $(GOLANGCI_LINT)
tools/gofumpt tools/golangci-lint:
	@test -e '$(TOOLS)/$(notdir $@).$(lastword $(subst @, ,$(TOOL)))' || \
	{ GOBIN='$(TOOLS)' go install '$(TOOL)' && \
	  touch '$(TOOLS)/$(notdir $@).$(lastword $(subst @, ,$(TOOL)))'; }
