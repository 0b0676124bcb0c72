// Package web has a page that shows the states of the edge that serves it: index.html, and dnprelay.js,
// a bundle of the client in TypeScript. The page is an example to begin one's own page with, and it shows
// at a glance whether an edge works.
//
// It does not serve anything: whoever has a listener serves Files.
package web

import "embed"

// Files has index.html and dnprelay.js, which `npm run bundle` in clients/typescript makes.
//
//go:embed index.html dnprelay.js
var Files embed.FS
