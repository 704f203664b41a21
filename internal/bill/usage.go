package bill

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// usage is what a change stream takes in an hour.
type usage struct {
	InstanceSeconds float64 `json:"instanceSeconds"`
	Requests        float64 `json:"requests"`
	Reads           float64 `json:"reads"`
	Writes          float64 `json:"writes"`
	Deletes         float64 `json:"deletes"`
}

// plus returns the sum of both, each times its part.
func (u usage) plus(part float64, v usage, other float64) usage {
	return usage{
		u.InstanceSeconds*part + v.InstanceSeconds*other, u.Requests*part + v.Requests*other,
		u.Reads*part + v.Reads*other, u.Writes*part + v.Writes*other, u.Deletes*part + v.Deletes*other,
	}
}

// simulated is what the function took for the loads of the table in docs/changes.md. The test
// TestCostsAreAsTheDocumentsSay of functions/changes writes it.
//
//go:embed changes.json
var simulated []byte

// point is one load that was simulated.
type point struct {
	Partitions int     `json:"partitions"`
	PerSecond  float64 `json:"changesPerSecond"`
	usage
}

// grid is the loads that were simulated: each of the partitions with each of the rates.
type grid struct {
	partitions, rates []float64
	at                map[[2]float64]usage
}

func simulatedGrid() (*grid, error) {
	var file struct {
		Full []point `json:"full"`
	}
	if err := json.Unmarshal(simulated, &file); err != nil {
		return nil, fmt.Errorf("reading what was simulated of change streams: %w", err)
	}
	g := &grid{at: map[[2]float64]usage{}}
	for _, p := range file.Full {
		n := float64(p.Partitions)
		g.partitions, g.rates = append(g.partitions, n), append(g.rates, p.PerSecond)
		g.at[[2]float64{n, p.PerSecond}] = p.usage
	}
	for _, axis := range []*[]float64{&g.partitions, &g.rates} {
		slices.Sort(*axis)
		*axis = slices.Compact(*axis)
	}
	if len(g.at) != len(g.partitions)*len(g.rates) || len(g.partitions) < 2 || len(g.rates) < 2 {
		return nil, fmt.Errorf("reading what was simulated of change streams: %d loads are no grid of %d partitions and %d rates", len(g.at), len(g.partitions), len(g.rates))
	}
	return g, nil
}

// usageOf returns what an hour of a stream takes, and in words where that comes from.
func usageOf(rate float64, partitions int) (usage, string, error) {
	g, err := simulatedGrid()
	if err != nil {
		return usage{}, "", err
	}
	u, how := g.usage(rate, float64(partitions))
	return u, how, nil
}

// usage returns that of a load. Between the loads that were simulated it is interpolated.
// Fewer partitions than the fewest take as much as these with as many changes each. More
// partitions, or changes, than the most take more in proportion.
func (g *grid) usage(rate, partitions float64) (usage, string) {
	fewest, most := g.partitions[0], g.partitions[len(g.partitions)-1]
	inside := min(max(partitions, fewest), most)
	times := max(partitions/most, 1)
	rate *= inside / partitions
	if top := g.rates[len(g.rates)-1]; rate > top {
		times *= rate / top
		rate = top
	}
	u := g.interpolate(rate, inside)
	how := "simulated"
	if _, exact := g.at[[2]float64{inside, rate}]; !exact {
		how = "interpolated"
	}
	if inside != partitions || times != 1 {
		how = fmt.Sprintf("%s for %s changes/s of %s partitions", how, Number(rate), Number(inside))
	}
	if times != 1 {
		how += fmt.Sprintf(", × %s", Number(times))
	}
	return u.plus(times, usage{}, 0), how
}

// interpolate returns the usage of a load within the grid: in proportion between its
// neighbours, by the logarithms of partitions and of changes and one.
func (g *grid) interpolate(rate, partitions float64) usage {
	few, many, p := between(g.partitions, partitions, math.Log10)
	slow, fast, r := between(g.rates, rate, math.Log1p)
	at := func(n float64) usage {
		return g.at[[2]float64{n, slow}].plus(1-r, g.at[[2]float64{n, fast}], r)
	}
	return at(few).plus(1-p, at(many), p)
}

// between returns the neighbours of x on an axis, and where x is between them by a scale: 0 at
// the lower one, 1 at the upper one.
func between(axis []float64, x float64, scale func(float64) float64) (low, high, part float64) {
	i := 1
	for i < len(axis)-1 && axis[i] < x {
		i++
	}
	low, high = axis[i-1], axis[i]
	return low, high, (scale(x) - scale(low)) / (scale(high) - scale(low))
}

// assumptions says on what the quantities of a pipeline's bill rest.
func assumptions(p *pipeline.Pipeline) []string {
	out := []string{
		fmt.Sprintf("a month has %d hours, and nothing of it is free", Hours),
		fmt.Sprintf("a message has %s bytes: Pub/Sub charges no less for a delivery", Number(EventBytes)),
		fmt.Sprintf("Cloud Run logs each request in %s bytes: an exclusion filter saves this (docs/cost.md)", Number(LogBytes)),
		fmt.Sprintf("an instance has 1 vCPU and %s GiB, and is billed while it has a request, in units of %s s", Number(Memory), Number(Tick)),
	}
	if p.Write != nil {
		out = append(out,
			fmt.Sprintf("an event holds one record and takes %s s of processor time (README.md); an instance is busy for %s of its time", Number(EventCPU), Number(Use)),
			"Bigtable answers within the 0.1 s to which Cloud Run rounds up; each event is delivered once")
	}
	if slices.ContainsFunc(p.Scans, func(s *pipeline.Scan) bool { return s.Schedule != nil }) {
		out = append(out,
			fmt.Sprintf("a row makes one record and takes %s s of processor time (docs/scans.md); a worker is busy for a third of its time and reads %s rows/s of a split of 256 MiB", Number(RecordCPU), Number(RowsPerSecond)),
			"the runs of a schedule are those of a year, divided by 12")
	}
	if len(p.Changes) > 0 {
		out = append(out,
			"change streams take what was simulated for the table in docs/changes.md, each request in an instance of its own, without processor time",
			"their changes are spread evenly by chance; between the loads of the table the usage is interpolated, beyond it in proportion",
			"one subscription reads the records that a change stream publishes")
	}
	return out
}

// without says what is in no line.
func without(p *pipeline.Pipeline) []string {
	out := []string{"Bigtable's nodes and storage, which any way to write costs", "network traffic between regions, taxes and support",
		"what Cloud Monitoring charges for alarms and metrics", "the storage of messages, documents, images and logs"}
	if slices.ContainsFunc(p.Scans, func(s *pipeline.Scan) bool { return s.Schedule == nil }) {
		out = append(out, "scans without a schedule (docs/scans.md#what-it-costs-beyond-firestore has the formula)")
	}
	return out
}
