package systest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPage wants every test, make target and file that SECURITY.md names to
// exist: a test that was renamed proves nothing there any more.
func TestSecurityPage(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{} // folders by test
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
			folder, _ := filepath.Rel(root, filepath.Dir(path))
			tests[string(m[1])] += " " + folder + " "
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllStringSubmatch(line, -1) {
			named++
			if !known(tests, m[1], m[2] != "") {
				t.Errorf("SECURITY.md names %s, which does not exist", m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(Test\\w+)` in ([a-z/]+[a-z])").FindAllStringSubmatch(line, -1) {
			if !strings.Contains(tests[m[1]], " "+m[2]+" ") {
				t.Errorf("SECURITY.md says that %s is in %s; it is in%s", m[1], m[2], tests[m[1]])
			}
		}
		for _, m := range regexp.MustCompile("`make ([a-z-]+)").FindAllStringSubmatch(line, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("SECURITY.md names make %s, which does not exist", m[1])
			}
		}
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) == 3 && strings.Contains(string(page), "proved by") &&
			!strings.Contains(line, "threat |") && !strings.Contains(cells[2], "`") && !strings.Contains(cells[2], "/") && !strings.Contains(line, "byte") {
			t.Errorf("a threat without a proof: %s", line)
		}
	}
	if named < 40 {
		t.Errorf("SECURITY.md names %d tests", named)
	}
}

// known reports whether a test has this name, or begins with it.
func known(tests map[string]string, name string, begin bool) bool {
	if tests[name] != "" || !begin {
		return tests[name] != ""
	}
	for t := range tests {
		if strings.HasPrefix(t, name) {
			return true
		}
	}
	return false
}
