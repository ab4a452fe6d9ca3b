package policy

import (
	"errors"

	"github.com/tailscale/hujson"
)

// Format formats HuJSON as the control plane does when it stores a file; comments are kept.
func Format(src []byte) ([]byte, error) {
	if _, deep := tooDeep(src); deep {
		return nil, errors.New("exceeded max depth")
	}
	return hujson.Format(src)
}
