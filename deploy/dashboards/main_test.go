package main

import (
	"bytes"
	"os"
	"testing"
)

func TestFilesAreCurrent(t *testing.T) {
	for _, d := range dashboards {
		got, err := os.ReadFile(d.file())
		if err != nil || !bytes.Equal(got, d.encode()) {
			t.Errorf("%s is not current (%v); run `make dashboards`", d.file(), err)
		}
	}
}
