package convert

import (
	"bytes"
	"strings"

	"github.com/tailscale/hujson"
)

// An extra of hujson is what stands between two tokens: blanks and comments.

// comments returns the comments of an extra, in order, without the blanks around them.
func comments(x hujson.Extra) []string {
	var out []string
	for len(x) > 0 {
		var n int
		switch {
		case bytes.HasPrefix(x, []byte("//")):
			n = len(x)
			if i := bytes.IndexByte(x, '\n'); i >= 0 {
				n = i
			}
		case bytes.HasPrefix(x, []byte("/*")):
			n = len(x)
			if i := bytes.Index(x[2:], []byte("*/")); i >= 0 {
				n = i + 4
			}
		default:
			x = x[1:]
			continue
		}
		out = append(out, strings.TrimRight(string(x[:n]), " \t\r"))
		x = x[n:]
	}
	return out
}

// allComments returns every comment in and around a value.
func allComments(v hujson.Value) []string {
	out := comments(v.BeforeExtra)
	switch c := v.Value.(type) {
	case *hujson.Object:
		for _, m := range c.Members {
			out = append(out, allComments(m.Name)...)
			out = append(out, allComments(m.Value)...)
		}
		out = append(out, comments(c.AfterExtra)...)
	case *hujson.Array:
		for _, e := range c.Elements {
			out = append(out, allComments(e)...)
		}
		out = append(out, comments(c.AfterExtra)...)
	}
	return append(out, comments(v.AfterExtra)...)
}

// glue joins extras. A comment to the end of the line gets its end where the next piece would be swallowed by it.
func glue(pieces ...hujson.Extra) hujson.Extra {
	out := hujson.Extra{}
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		if endsOpen(out) && p[0] != '\n' && !bytes.HasPrefix(p, []byte("\r\n")) {
			out = append(out, '\n')
		}
		out = append(out, p...)
	}
	return out
}

// closed ends an extra so that a token may follow.
func closed(x hujson.Extra) hujson.Extra {
	if endsOpen(x) {
		x = append(x, '\n')
	}
	return x
}

// endsOpen reports whether an extra ends inside of a comment that only a line break ends.
func endsOpen(x hujson.Extra) bool {
	all := comments(x)
	if len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	return strings.HasPrefix(last, "//") && bytes.HasSuffix(bytes.TrimRight(x, " \t\r"), []byte(last))
}

// splitTail parts the comment that ends the line of what stands before from the rest: "a, // about a".
func splitTail(x hujson.Extra) (tail, rest hujson.Extra) {
	i := 0
	for i < len(x) {
		switch {
		case x[i] == '\n':
			if i > 0 && x[i-1] == '\r' {
				i--
			}
			if len(comments(x[:i])) == 0 {
				return nil, x
			}
			return x[:i:i], x[i:]
		case bytes.HasPrefix(x[i:], []byte("//")):
			n := bytes.IndexByte(x[i:], '\n')
			if n < 0 {
				return x, nil
			}
			i += n
		case bytes.HasPrefix(x[i:], []byte("/*")):
			n := bytes.Index(x[i+2:], []byte("*/"))
			if n < 0 {
				return nil, x
			}
			i += n + 4
		default:
			i++
		}
	}
	return nil, x // no line ends here
}

// blank is the layout of an extra without its comments: a line break with the indent of the last line, or a blank.
func blank(x hujson.Extra) hujson.Extra {
	i := bytes.LastIndexByte(x, '\n')
	if i < 0 {
		return hujson.Extra(" ")
	}
	indent := x[i+1:]
	indent = indent[:len(indent)-len(bytes.TrimLeft(indent, " \t"))]
	return append(hujson.Extra("\n"), indent...)
}

// lines lays comments out in front of what follows, each after a blank as given.
func lines(texts []string, before hujson.Extra) hujson.Extra {
	var out []hujson.Extra
	for _, t := range texts {
		out = append(out, before, hujson.Extra(t))
	}
	return glue(out...)
}
