//go:build tools

// Package modules pins the S3 server of the tests and the demo; ../onenode/build.py builds it.
package modules

import _ "github.com/versity/versitygw/cmd/versitygw"
