package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is how deep values may be nested. A document needs four levels.
const maxDepth = 100

// value is a JSON value with the place where it begins, which no other value and no key has: nil, a bool, a number, a
// string, a []value or an object.
type value struct {
	at int // offset in bytes
	v  any
}

// number is a number as it is written.
type number string

// object is a JSON object whose keys keep their order and may repeat.
type object []member

type member struct {
	at    int
	key   string
	value value
}

// syntaxError is what keeps a text from being one JSON value.
type syntaxError struct {
	at      int // offset in bytes; negative: it is about all of it
	message string
}

func (e *syntaxError) Error() string { return e.message }

// parseTree reads one JSON value in one walk. An error is a [*syntaxError].
func parseTree(data []byte) (value, error) {
	if err := encoding(data); err != nil {
		return value{}, err
	}
	r := reader{data: data}
	v, ok := r.value()
	if ok {
		r.space()
		ok = r.at == len(data)
	}
	switch {
	case ok:
		return v, nil
	case r.depth >= maxDepth:
		return value{}, &syntaxError{r.at, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	return value{}, explain(data, r.at)
}

// encoding looks for what editors and shells of some systems make of a text.
func encoding(data []byte) error {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return &syntaxError{-1, "the document is empty"}
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")), isWide(data):
		return &syntaxError{-1, "the document is not UTF-8 text: it looks like UTF-16; save it as UTF-8"}
	case bytes.HasPrefix(data, []byte("\ufeff")):
		return &syntaxError{-1, "the document begins with a byte order mark: save it as UTF-8 without one"}
	case !utf8.Valid(data):
		at := 0
		for r, size := utf8.DecodeRune(data); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRune(data[at:]) {
			at += size
		}
		return &syntaxError{at, fmt.Sprintf("the document is not UTF-8 text: the byte %#02x begins no character", data[at])}
	}
	return nil
}

// isWide says whether the text begins as JSON does in UTF-16 without a byte order mark.
func isWide(data []byte) bool {
	return len(data) > 1 && (data[0] == 0 && data[1] == '{' || data[0] == '{' && data[1] == 0)
}

// explain puts what stopped the reader at a place into the words of the standard library, and adds what was probably meant.
func explain(data []byte, at int) error {
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return &syntaxError{at, "not JSON"} // both read the same language, so that this is not reached
	}
	at = int(min(max(syntax.Offset-1, 0), int64(len(data)-1))) // the library counts the bytes read
	message, rest := syntax.Error(), data[at:]
	before := bytes.TrimRight(data[:at], " \t\r\n")
	switch {
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), rest[0] == '#':
		message += ": JSON has no comments"
	case (rest[0] == '}' || rest[0] == ']') && bytes.HasSuffix(before, []byte(",")):
		message += ": is there a comma too many before it?"
	case rest[0] == '\'':
		message += ": JSON has double quotes only"
	case rest[0] == '"' && len(before) > 0 && bytes.ContainsAny(before[len(before)-1:], `"}]0123456789el`):
		message += ": is there a comma missing before it?"
	}
	return &syntaxError{at, message}
}

// position turns an offset into a line and a column, which counts characters.
func position(data []byte, at int) (line, column int) {
	before := data[:min(max(at, 0), len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:])
}

// reader reads values. Where it fails, it only says so: [explain] finds out why.
type reader struct {
	data  []byte
	at    int
	depth int
}

func (r *reader) space() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return
		}
	}
}

// next takes a character, behind white space, if it is the next one.
func (r *reader) next(c byte) bool {
	r.space()
	if r.at < len(r.data) && r.data[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *reader) value() (value, bool) {
	r.space()
	out := value{at: r.at}
	if r.at == len(r.data) || r.depth >= maxDepth {
		return out, false
	}
	var ok bool
	switch r.data[r.at] {
	case '{':
		out.v, ok = r.object()
	case '[':
		out.v, ok = r.array()
	case '"':
		out.v, ok = r.text()
	default:
		out.v, ok = r.word()
	}
	return out, ok
}

func (r *reader) object() (object, bool) {
	r.at++
	r.depth++
	out := object{}
	if r.next('}') {
		r.depth--
		return out, true
	}
	for {
		r.space()
		m := member{at: r.at}
		ok := r.at < len(r.data) && r.data[r.at] == '"'
		if ok {
			m.key, ok = r.text()
		}
		if ok = ok && r.next(':'); ok {
			m.value, ok = r.value()
		}
		if !ok {
			return nil, false
		}
		out = append(out, m)
		if r.next('}') {
			r.depth--
			return out, true
		}
		if !r.next(',') {
			return nil, false
		}
	}
}

func (r *reader) array() ([]value, bool) {
	r.at++
	r.depth++
	out := []value{}
	if r.next(']') {
		r.depth--
		return out, true
	}
	for {
		v, ok := r.value()
		if !ok {
			return nil, false
		}
		out = append(out, v)
		if r.next(']') {
			r.depth--
			return out, true
		}
		if !r.next(',') {
			return nil, false
		}
	}
}

// text reads a string. One with escapes is left to the standard library.
func (r *reader) text() (string, bool) {
	begin, escaped := r.at, false
	for i := begin + 1; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '\\':
			escaped = true
			i++
		case c == '"':
			r.at = i + 1
			if !escaped {
				return string(r.data[begin+1 : i]), true
			}
			var s string
			err := json.Unmarshal(r.data[begin:r.at], &s)
			return s, err == nil
		case c < ' ':
			return "", false
		}
	}
	return "", false
}

// word reads a number, true, false or null.
func (r *reader) word() (any, bool) {
	begin := r.at
	for r.at < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:]}[{\""), r.data[r.at]) < 0 {
		r.at++
	}
	word := r.data[begin:r.at]
	switch string(word) {
	case "true", "false":
		return word[0] == 't', true
	case "null":
		return nil, true
	}
	return number(word), json.Valid(word)
}
