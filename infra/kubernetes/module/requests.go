package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	validation "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// maxBodyBytes is the limit of an API server.
const maxBodyBytes = 3 << 20

// request says what to do with an object. The object itself follows it in the buffer.
type request struct {
	// Verb is create, update, delete or define. The object of delete are its options. define creates a CustomResourceDefinition, and serves its kinds from then on.
	Verb string `json:"verb"`
	// Until is "admission" for the object that mutating admission gets, with its defaults. Else it is the object that
	// would be stored.
	Until           string `json:"until"`
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Subresource     string `json:"subresource"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	FieldValidation string `json:"fieldValidation"`
	User            struct {
		Name   string   `json:"username"`
		UID    string   `json:"uid"`
		Groups []string `json:"groups"`
	} `json:"user"`
}

// answer has the object or the Status that an API server would answer with.
type answer struct {
	Code     int      `json:"code"`
	Warnings []string `json:"warnings,omitempty"`
	// Object and Status are JSON already.
	Object []byte `json:"-"`
	Status []byte `json:"-"`
}

// errKindNotServed is the error for a kind that no API server of this minor serves, and no definition defines.
var errKindNotServed = errors.New("this kind is not served")

// requestInfos reads what a path asks for.
var requestInfos = &apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// admissionStep takes the object that mutating admission gets, and ends the request if only that was asked for.
type admissionStep struct {
	stop   bool
	object []byte
}

var admission = &admissionStep{}

// errStopped is a refusal, because upstream's handlers log other errors.
var errStopped = apierrors.NewBadRequest("the request ends before admission")

func (*admissionStep) Handles(apiadmission.Operation) bool { return true }

func (step *admissionStep) Admit(_ context.Context, attributes apiadmission.Attributes, types apiadmission.ObjectInterfaces) error {
	if !step.stop {
		return nil
	}
	object, kind := attributes.GetObject(), attributes.GetKind()
	if _, custom := object.(runtime.Unstructured); !custom {
		versioned, err := types.GetObjectCreater().New(kind)
		if err != nil {
			return err
		}
		if err := types.GetObjectConvertor().Convert(object, versioned, nil); err != nil {
			return err
		}
		object = versioned
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	step.object = text
	return errStopped
}

// server answers requests.
type server struct {
	builtIns    *builtIns
	definitions *definitions
}

// answer answers one request as an API server would.
func (s *server) answer(asked request, object, old []byte) (answer, error) {
	groupVersion, err := schema.ParseGroupVersion(asked.APIVersion)
	if err != nil {
		return answer{}, errKindNotServed
	}
	handler := http.Handler(s.builtIns.container)
	kind, found := s.builtIns.kinds[groupVersion.WithKind(asked.Kind)]
	if !found {
		handler = s.definitions.handler
		if kind, found = s.definitions.kinds[groupVersion.WithKind(asked.Kind)]; !found {
			return answer{}, errKindNotServed
		}
	}
	if err := nodePorts.reset(); err != nil {
		return answer{}, err
	}
	storedObject, *admission = old, admissionStep{stop: asked.Until == "admission"}
	defer func() { storedObject, *admission = nil, admissionStep{} }()

	recorder := &responseRecorder{header: http.Header{}}
	httpRequest, err := newHTTPRequest(asked, kind, object)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	filters.WithWarningRecorder(handler).ServeHTTP(recorder, httpRequest)

	given := answer{Code: recorder.code}
	warnings, _ := utilnet.ParseWarningHeaders(recorder.header.Values("Warning"))
	for _, warning := range warnings {
		given.Warnings = append(given.Warnings, warning.Text)
	}
	switch body := bytes.TrimSpace(recorder.body.Bytes()); {
	case admission.object != nil:
		given.Code, given.Object = http.StatusOK, admission.object
	case recorder.code < 300:
		given.Object = body
	case json.Valid(body):
		given.Status = body
	default:
		return refuse(recorder.code, string(body))
	}
	if err == nil && asked.Verb == "define" && recorder.code < 300 {
		err = s.definitions.add(given.Object)
	}
	return given, err
}

// refuse returns a refusal that upstream's handlers have no Status for.
func refuse(code int, message string) (answer, error) {
	status, err := json.Marshal(map[string]any{"code": code, "message": message})
	return answer{Code: code, Status: status}, err
}

func newHTTPRequest(asked request, kind servedKind, object []byte) (*http.Request, error) {
	var segments []string
	if kind.namespaced {
		segments = append(segments, "namespaces", asked.Namespace)
	}
	segments = append(segments, kind.resource)
	method := http.MethodPost
	switch asked.Verb {
	case "update":
		method = http.MethodPut
	case "delete":
		method = http.MethodDelete
	}
	if method != http.MethodPost || asked.Subresource != "" {
		segments = append(segments, asked.Name)
	}
	if asked.Subresource != "" {
		segments = append(segments, asked.Subresource)
	}
	path := kind.root
	for _, segment := range segments {
		if problems := validation.IsValidPathSegmentName(segment); segment == "" || len(problems) > 0 {
			return nil, fmt.Errorf("%q can't be a part of a path", segment)
		}
		path += "/" + url.PathEscape(segment)
	}
	query := url.Values{}
	if asked.FieldValidation != "" {
		query.Set("fieldValidation", asked.FieldValidation)
	}
	result, err := http.NewRequest(method, path+"?"+query.Encode(), io.NopCloser(bytes.NewReader(object)))
	if err != nil {
		return nil, err
	}
	result.ContentLength = int64(len(object))
	result.Header.Set("Content-Type", "application/json")
	result.Header.Set("Accept", "application/json")
	info, err := requestInfos.NewRequestInfo(result)
	if err != nil {
		return nil, err
	}
	// This group may do everything, so that no request is refused for its user.
	groups := append([]string{user.SystemPrivilegedGroup}, asked.User.Groups...)
	sender := &user.DefaultInfo{Name: asked.User.Name, UID: asked.User.UID, Groups: slices.Compact(groups)}
	return result.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(result.Context(), info), sender)), nil
}

// responseRecorder keeps what a handler writes.
type responseRecorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (recorder *responseRecorder) Header() http.Header { return recorder.header }

func (recorder *responseRecorder) WriteHeader(code int) {
	if recorder.code == 0 {
		recorder.code = code
	}
}

func (recorder *responseRecorder) Write(text []byte) (int, error) {
	recorder.WriteHeader(http.StatusOK)
	return recorder.body.Write(text)
}
