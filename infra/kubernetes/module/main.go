// Package main answers requests as kube-apiserver does, in one process, without storage, admission and network. It is
// compiled to WebAssembly. A host writes a request into the buffer, calls a function, and reads the answer.
package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	// CronJobs name time zones, and there are no files that describe them.
	_ "time/tzdata"
)

var (
	// buffer has what the host writes: JSON, then an object, then the object that it replaces.
	buffer []byte
	// result has what the host reads.
	result  []byte
	current *server
)

func main() {}

// setUp makes the server by the options in the buffer. The result is empty, or says why it isn't possible.
func setUp(length int) {
	var chosen options
	err := json.Unmarshal(buffer[:length], &chosen)
	if err == nil {
		current, err = newServer(chosen)
	}
	result = nil
	if err != nil {
		result = []byte(err.Error())
	}
}

// answerRequest answers the request in the buffer. The result is an answer, {"notServed":true} or {"crash":"…"}.
func answerRequest(header, object, old int) {
	defer func() {
		if reason := recover(); reason != nil {
			setResult(map[string]string{"crash": fmt.Sprint(reason)})
		}
	}()
	var asked request
	if err := json.Unmarshal(buffer[:header], &asked); err != nil {
		panic(err)
	}
	// Handlers may keep what they get.
	texts := append([]byte(nil), buffer[header:header+object+old]...)
	var before []byte
	if old > 0 {
		before = texts[object:]
	}
	given, err := current.answer(asked, texts[:object:object], before)
	switch err {
	case nil:
		setResult(given)
		addMember("object", given.Object)
		addMember("status", given.Status)
	case errKindNotServed:
		setResult(map[string]bool{"notServed": true})
	default:
		panic(err)
	}
}

func setResult(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	result = text
}

// addMember adds a member to the result, whose value is JSON. To marshal it would read all of it once more.
func addMember(name string, value []byte) {
	if value != nil {
		result = fmt.Appendf(result[:len(result)-1], ",%q:%s}", name, value)
	}
}

// collectGarbage frees memory before it becomes an image.
func collectGarbage() {
	buffer, result = nil, nil
	runtime.GC()
	runtime.GC()
}
