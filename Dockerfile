# The one image of the four functions: a static binary that runs as nobody in an image without a
# shell. FUNCTION_TARGET names the function that an instance serves.
#
# internal/image builds the binary with the RUN line below and runs it in an empty root. No machine
# that tests this repository has a container engine or reaches a registry: the build of the image
# itself, and the two base images, are not verified there. Pin the base images with their digests:
#
#   docker build --build-arg VERSION=v1.2.3 --build-arg BUILD_IMAGE=golang:1.26@sha256:… \
#     --build-arg BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot@sha256:… .
ARG BUILD_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
WORKDIR /src
# The modules change less often than the code, and are kept in a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
ARG TARGETOS=linux
ARG TARGETARCH=amd64
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -X github.com/bigtable-functions/bigtable-functions/internal/version.stamped=$VERSION" -o /out/functions ./cmd/functions

FROM ${BASE_IMAGE}
COPY --from=build /out/functions /functions
# The user nonroot of distroless, by number: a number needs no /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/functions"]
