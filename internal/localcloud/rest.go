package localcloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// rest serves Pub/Sub as JSON over HTTP: each method under the path that its definition
// gives it, by a call over gRPC. Clients are not asked who they are, so what a web page
// sends from a browser is refused.
type rest struct {
	conn   grpc.ClientConnInterface
	routes []route
	server *http.Server
	conns  sync.WaitGroup
}

// route is one binding of a method to a path.
type route struct {
	method    protoreflect.MethodDescriptor
	verb      string
	path      *regexp.Regexp
	variables []string // the field that each group of path sets
	hasBody   bool
}

// largestBody bounds the body of a request, in bytes: ten messages of 10 MB in base64.
const largestBody = 134 << 20

func newREST(conn grpc.ClientConnInterface) *rest {
	r := &rest{conn: conn}
	services := pubsubpb.File_google_pubsub_v1_pubsub_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			r.routes = append(r.routes, routes(methods.Get(j))...)
		}
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute, ConnState: r.count}
	return r
}

func (r *rest) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		r.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		r.conns.Done()
	}
}

func (r *rest) serve(l net.Listener) error {
	if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// close cuts off what is under way and waits until it is gone.
func (r *rest) close() error {
	err := r.server.Close()
	r.conns.Wait()
	return err
}

// routes are the bindings of a method; none where it has no path.
func routes(m protoreflect.MethodDescriptor) []route {
	rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil {
		return nil
	}
	var out []route
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.AdditionalBindings...) {
		verb, path := verbAndPath(binding)
		if verb == "" {
			continue
		}
		to := route{method: m, verb: verb, hasBody: binding.Body == "*"}
		to.path, to.variables = compile(path)
		out = append(out, to)
	}
	return out
}

func verbAndPath(rule *annotations.HttpRule) (verb, path string) {
	switch p := rule.Pattern.(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	}
	return "", ""
}

// variable is a field in a path's template, such as {topic=projects/*/topics/*}.
var variable = regexp.MustCompile(`\{([a-z_.]+)=([^}]*)\}`)

// compile makes a template's expression, and says which field each of its groups sets.
// Source: google/api/http.proto, "Path template syntax"; ids hold no colon, which begins
// a custom verb.
func compile(template string) (*regexp.Regexp, []string) {
	var fields []string
	var b strings.Builder
	rest := template
	for {
		at := variable.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		b.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		fields = append(fields, rest[at[2]:at[3]])
		b.WriteString("(" + strings.ReplaceAll(regexp.QuoteMeta(rest[at[4]:at[5]]), `\*`, `[^/:]+`) + ")")
		rest = rest[at[1]:]
	}
	return regexp.MustCompile("^" + b.String() + regexp.QuoteMeta(rest) + "$"), fields
}

func (r *rest) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	out, err := r.answer(w, req)
	if err == nil {
		var body []byte
		if body, err = protojson.Marshal(out); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body) // who asked may be gone
			return
		}
	}
	writeError(w, status.Convert(err))
}

func (r *rest) answer(w http.ResponseWriter, req *http.Request) (proto.Message, error) {
	if err := checkOrigin(req); err != nil {
		return nil, err
	}
	for _, to := range r.routes {
		values := to.path.FindStringSubmatch(req.URL.Path)
		if values == nil || to.verb != req.Method {
			continue
		}
		if !utf8.ValidString(req.URL.Path) {
			return nil, status.Error(codes.InvalidArgument, "the path is not UTF-8")
		}
		in, err := to.request(http.MaxBytesReader(w, req.Body, largestBody), req.URL.Query(), values[1:])
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		return r.call(req.Context(), to.method, in)
	}
	return nil, status.Errorf(codes.NotFound, "there is no %s %s", req.Method, req.URL.Path)
}

// checkOrigin refuses what a browser sends for a page, and what reached this machine
// under the name of another.
func checkOrigin(req *http.Request) error {
	host := req.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	if req.Header.Get("Origin") != "" || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return status.Error(codes.PermissionDenied, "only programs on this machine are answered, under the name localhost or its address")
	}
	return nil
}

// request makes the method's message of body, query and path. Of the query, what is no
// field is about the form of the answer, and is not looked at.
func (to *route) request(body io.Reader, query url.Values, path []string) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(to.method.Input().FullName())
	if err != nil {
		return nil, err
	}
	in := kind.New()
	if to.hasBody {
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, fmt.Errorf("reading the body: %w", err)
		}
		if len(text) > 0 {
			if err := protojson.Unmarshal(text, in.Interface()); err != nil {
				return nil, fmt.Errorf("reading the body: %w", err)
			}
		}
	}
	for name, values := range query {
		if in.Descriptor().Fields().ByJSONName(name) == nil {
			continue
		}
		text, err := json.Marshal(map[string]string{name: values[0]})
		if err != nil {
			return nil, err
		}
		field := kind.New()
		if err := protojson.Unmarshal(text, field.Interface()); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		proto.Merge(in.Interface(), field.Interface())
	}
	for i, name := range to.variables {
		set(in, name, path[i])
	}
	return in.Interface(), nil
}

// set sets a field that a path names, such as topic or topic.name.
func set(in protoreflect.Message, path, value string) {
	name, rest, nested := strings.Cut(path, ".")
	field := in.Descriptor().Fields().ByName(protoreflect.Name(name))
	if nested {
		set(in.Mutable(field).Message(), rest, value)
		return
	}
	in.Set(field, protoreflect.ValueOfString(value))
}

func (r *rest) call(ctx context.Context, m protoreflect.MethodDescriptor, in proto.Message) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	out := kind.New().Interface()
	return out, r.conn.Invoke(ctx, fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()), in, out)
}

// writeError writes a status as Google's services do.
func writeError(w http.ResponseWriter, s *status.Status) {
	type detail struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
	}
	number := httpStatus(s.Code())
	body, err := json.Marshal(map[string]detail{"error": {number, s.Message(), code.Code(s.Code()).String()}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(number)
	_, _ = w.Write(body) // who asked may be gone
}

// httpStatus is the status for a code.
// Source: google/rpc/code.proto.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Canceled:
		return 499
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
