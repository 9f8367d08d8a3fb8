package main

import "unsafe"

//go:wasmexport buffer
func exportedBuffer(size int32) int32 {
	if int(size) > len(buffer) {
		buffer = make([]byte, size)
	}
	return int32(uintptr(unsafe.Pointer(unsafe.SliceData(buffer))))
}

// Returns the address of the result in the upper half, and its length in the lower one.
func exportedResult() int64 {
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(result))))<<32 | int64(len(result))
}

//go:wasmexport setUp
func exportedSetUp(length int32) int64 {
	setUp(int(length))
	return exportedResult()
}

//go:wasmexport answer
func exportedAnswer(header, object, old int32) int64 {
	answerRequest(int(header), int(object), int(old))
	return exportedResult()
}

//go:wasmexport collectGarbage
func exportedCollectGarbage() { collectGarbage() }
