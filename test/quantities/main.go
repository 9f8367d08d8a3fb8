// Prints what apimachinery makes of quantities. What it says is kept:
//
//	go run . > ../fixtures/quantities.json
package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

var numbers = []string{"0", "1", "-1", "1.5", "0.5", "007", "1.500", "1000", "1024", "-2048.1", "0.0000000001", "9223372036854775807"}

var suffixes = []string{
	"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
	"e0", "e3", "E+1", "e-4", "E-9", "e-12", "e20",
}

var odd = []string{
	"+1", "-0", "+0.5", ".5", "1.", "-.5", "1.Gi", ".5Gi", "00.100", "1000000", "12345678", "1e+3", "1E3", "1E-3", "100E", "10Ei",
	"-100Ei", "8Ei", "7.9999Ei", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "9223372036854775",
	"9223372036854776", "9223372036854775.807", "123456789012345678901234567890", "0.000000001", "0.0000000011", "-0.0000000011",
	"0.1Ki", "0.0001Ki", "0.9999999999Ki", "1023", "1048576", "1048576Ki", "1.1n", "1e-20", "1e18", "1e21",
}

var none = []string{
	"", " ", "1 ", " 1", "one", "K", "1K", "1ki", "1mi", "1Zi", "1i", "1e", "1e1.5", "1ee5", "1E+", "1..5", "1,5", "0x1", "1m1", "--1",
	"+-1", "1\n", "1Kib", "1KiB", "1nn", "1mm", "1EE", "Infinity", "NaN", "١", "1e99999999999999999999",
}

var operands = []string{"0", "0Ki", "1", "500m", "0.1", "1Ki", "1.5Gi", "3e3", "100e-3", "1n", "-1", "9223372036854775807", "1Ei", "1.500"}

// What is null here, apimachinery says in a way that depends on how it holds the number: beyond 64 bits, below zero, or
// out of suffixes.
type answer struct {
	Text      string  `json:"text"`
	Canonical *string `json:"canonical"`
	Value     *int64  `json:"value,string"`
	Milli     *int64  `json:"milli,string"`
}

type pair struct {
	One   string `json:"one"`
	Other string `json:"other"`
	Sum   string `json:"sum"`
	Cmp   int    `json:"cmp"`
}

func main() {
	var quantities, strangers, pairs []any
	for _, number := range numbers {
		for _, suffix := range suffixes {
			quantities = append(quantities, about(number+suffix))
		}
	}
	for _, text := range odd {
		quantities = append(quantities, about(text))
	}
	for _, text := range none {
		if _, err := resource.ParseQuantity(text); err == nil {
			panic(text + " is a quantity")
		}
		strangers = append(strangers, text)
	}
	for i, one := range operands {
		for j, other := range operands {
			// Each in one order, and every third in the other as well.
			if i <= j || (i+j)%3 == 0 {
				pairs = append(pairs, together(one, other))
			}
		}
	}
	fmt.Printf("{\"quantities\": [\n%s],\n\"none\": [\n%s],\n\"pairs\": [\n%s]}\n", lines(quantities), lines(strangers), lines(pairs))
}

// One a line, so that changes can be read.
func lines(entries []any) string {
	var texts []string
	for _, entry := range entries {
		text, err := json.Marshal(entry)
		if err != nil {
			panic(err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, ",\n")
}

func about(text string) answer {
	quantity := resource.MustParse(text)
	found := answer{Text: text, Value: rounded(quantity.DeepCopy(), 0), Milli: rounded(quantity.DeepCopy(), resource.Milli)}
	number, suffix := quantity.CanonicalizeBytes(nil)
	canonical := string(number) + string(suffix)
	if quantity.Cmp(resource.MustParse(canonical)) == 0 {
		found.Canonical = &canonical
	}
	return found
}

// Nothing where the answer isn't the number, rounded away from zero.
func rounded(quantity resource.Quantity, scale resource.Scale) *int64 {
	value := quantity.ScaledValue(scale)
	exact := new(inf.Dec).Round(quantity.AsDec(), inf.Scale(-scale), inf.RoundUp)
	if exact.Cmp(inf.NewDec(value, inf.Scale(-scale))) != 0 {
		return nil
	}
	return &value
}

func together(one, other string) pair {
	sum := resource.MustParse(one)
	sum.Add(resource.MustParse(other))
	left := resource.MustParse(one)
	return pair{one, other, sum.String(), left.Cmp(resource.MustParse(other))}
}
