package main

import "testing"

func startRelay(t testing.TB) string { return "nats://127.0.0.1:1" }
