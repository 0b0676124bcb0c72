//go:build linux

package nearby

import (
	"bytes"
	"fmt"
	"os"
	"slices"
)

// A picture is the field at the end of a run.
type picture struct {
	side    float64
	bands   []Band
	objects []point
	eyes    []int     // the object of each client
	kib     []float64 // per second, of each client
}

func (v *watch) picture(r *round) *picture {
	p := &picture{side: v.load.Side, bands: v.load.Bands, objects: slices.Clone(v.world.history[v.tick%historyTicks])}
	for i := range v.clients {
		p.eyes = append(p.eyes, v.clients[i].eye)
		p.kib = append(p.kib, float64(r.bytes[i])/r.with.wall.Seconds()/1024)
	}
	return p
}

// WriteSVG writes a picture of the field to a file unless its name is empty: objects, clients by the bytes that they receive, and the
// bands of a few of them.
func (f *Figures) WriteSVG(file string) error {
	if file == "" {
		return nil
	}
	return os.WriteFile(file, f.picture.svg(), 0o644)
}

// Sizes of the picture in pixels.
const (
	fieldPixels = 800
	barsPixels  = 240
	margin      = 20
	banded      = 6 // clients whose bands are drawn
)

func (p *picture) svg() []byte {
	var b bytes.Buffer
	width, height := margin+fieldPixels+margin+barsPixels+margin, margin+fieldPixels+margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><rect x="%d" y="%d" width="%d" height="%d" fill="#f4f6f8" stroke="#889"/>`+"\n", width, height, margin, margin, fieldPixels, fieldPixels)
	fmt.Fprintf(&b, `<clipPath id="field"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath><g clip-path="url(#field)">`+"\n", margin, margin, fieldPixels, fieldPixels)
	b.WriteString(`<path fill="none" stroke="#99a4b0" stroke-width="1.5" d="`)
	for _, o := range p.objects {
		x, y := p.pixel(o)
		fmt.Fprintf(&b, "M%.1f %.1fh1.5", x, y)
	}
	b.WriteString(`"/>` + "\n")
	most := max(slices.Max(p.kib), 1e-9)
	for i := range min(banded, len(p.eyes)) {
		p.circles(&b, p.eyes[i])
	}
	for i, eye := range p.eyes {
		x, y := p.pixel(p.objects[eye])
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`, x, y, colour(p.kib[i]/most))
	}
	b.WriteString("\n</g>\n")
	p.bars(&b, most)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (p *picture) pixel(o point) (x, y float64) {
	scale := fieldPixels / p.side
	return margin + (float64(o.x)+p.side/2)*scale, margin + (float64(o.z)+p.side/2)*scale
}

// circles draws the bands around a client, the nearest in the strongest colour.
func (p *picture) circles(b *bytes.Buffer, eye int) {
	x, y := p.pixel(p.objects[eye])
	for i, band := range slices.Backward(p.bands) {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="#2563eb" fill-opacity="0.08" stroke="#2563eb" stroke-opacity="%.2f"/>`+"\n", x, y, band.Within*fieldPixels/p.side, 0.8/float64(i+1))
	}
}

// bars draws how many clients receive how much.
func (p *picture) bars(b *bytes.Buffer, most float64) {
	const rows = 20
	var counts [rows]int
	for _, kib := range p.kib {
		counts[min(rows-1, int(kib/most*rows))]++
	}
	left, high := margin+fieldPixels+margin, slices.Max(counts[:])
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">clients by KiB/s</text>`+"\n", left, margin+12)
	for i, n := range counts {
		y := margin + 24 + i*20
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%.0f</text><rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/><text x="%.1f" y="%d">%d</text>`+"\n",
			left+40, y+12, (float64(i)+1)/rows*most, left+46, y, float64(n)/float64(max(1, high))*(barsPixels-90), colour((float64(i)+0.5)/rows),
			float64(left)+50+float64(n)/float64(max(1, high))*(barsPixels-90), y+12, n)
	}
	y := margin + 24 + (rows+1)*20
	for _, line := range []string{
		fmt.Sprintf("%d objects (grey),", len(p.objects)), fmt.Sprintf("%d clients (coloured),", len(p.eyes)), fmt.Sprintf("bands of %d of them:", min(banded, len(p.eyes))),
	} {
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", left, y, line)
		y += 18
	}
	for _, band := range p.bands {
		rate := "every change"
		if band.Rate > 0 {
			rate = fmt.Sprintf("%v changes a second", band.Rate)
		}
		fmt.Fprintf(b, `<text x="%d" y="%d">within %v: %s</text>`+"\n", left+10, y, band.Within, rate)
		y += 18
	}
}

// colour goes from green over yellow to red.
func colour(part float64) string {
	return fmt.Sprintf("hsl(%.0f 85%% 42%%)", 130*(1-min(max(part, 0), 1)))
}
