package wire

// What the message template of the reference viewer says about each message, by the last bytes of its number: z if it may be
// zero-coded, t if it is trusted, so that simulators send it and viewers must not, b for both, and - for neither.
const (
	highTemplate   = " --tz-z--tttbtttt---tbbbbbttt-tt"
	mediumTemplate = " zzzzztttbbztttttz"
	lowTemplate    = " zt-bttttbttttttbttttbtt-b-ttzbzbzbbbbbzbbtzt---zbbzbb-b-b-t-t--tztbtt---tt-----zz--z-tt-zzzzzzz" +
		"zzzzzzzzbzzzzzzzz----zz-zzzzz------z-zttbtbtt-zzttttbztttzzzz-btt-ttt-t---tbbbzzt-t-t---t---ttbz" +
		"--ttbzzzzzz-tt---z---zzzbz-tbbttbtt--tttttt-t-tbbtt----bb--t-bz---tzzz---zzbzz--t--z-zbzbbtt-zzz" +
		"--bztzzbb--t----zzzbb-tzbzbb--t--tttzb---ttb---ttttztz-zt-t-t-t-bzbzbzb-b-bz-t-bz---t-t-b--tt-bz" +
		"-t-bbbbb--tzz-----t-b-t--t-t-tt-t-ttt-tz--z   -"
)

// ZeroCoded reports whether the message may be zero-coded.
func (n Number) ZeroCoded() bool { return n.template() == 'z' || n.template() == 'b' }

// Trusted reports whether only simulators may send the message.
func (n Number) Trusted() bool { return n.template() == 't' || n.template() == 'b' }

// template returns the letter of a message; a space for a number that is not in the template, and for the fixed ones, which are neither.
func (n Number) template() byte {
	letters, i := "", int(n&0xFFFF)
	switch n.Frequency() {
	case High:
		letters = highTemplate
	case Medium:
		letters, i = mediumTemplate, i&0xFF
	case Low:
		letters = lowTemplate
	}
	if i >= len(letters) {
		return ' '
	}
	return letters[i]
}
