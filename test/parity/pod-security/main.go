// Says what upstream's Pod Security evaluator has against pods, as JSON, one line a pod.
//
//	evaluator < pods         evaluates pods, one line of JSON each
//	evaluator FOLDER         prints those in upstream's folder of test data, with their place there
package main

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Newer than any version in which a check changes.
const newest = 40

type placed struct {
	Place string      `json:"place"`
	Pod   *corev1.Pod `json:"pod"`
}

// What a level has against a pod from a version on, until the next one that says something else.
type verdict struct {
	Since   int      `json:"since"`
	Allowed bool     `json:"allowed"`
	Reasons []string `json:"reasons"`
	Details []string `json:"details"`
	// In one text, as refusals and warnings have it.
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

type verdicts struct {
	Baseline   []verdict `json:"baseline"`
	Restricted []verdict `json:"restricted"`
	// Where no version is named.
	Latest map[api.Level]verdict `json:"latest"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	if len(os.Args) > 1 {
		corpus(os.Args[1], func(found placed) { check(lines.Encode(found)) })
		return
	}

	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	check(err)
	judge := func(level api.Level, version api.Version, pod *corev1.Pod) verdict {
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: version}, &pod.ObjectMeta, &pod.Spec))
		return verdict{
			Allowed: result.Allowed, Reasons: result.ForbiddenReasons, Details: result.ForbiddenDetails,
			Reason: result.ForbiddenReason(), Detail: result.ForbiddenDetail(),
		}
	}
	everywhere := func(level api.Level, pod *corev1.Pod) (found []verdict) {
		for minor := 0; minor <= newest; minor++ {
			next := judge(level, api.MajorMinorVersion(1, minor), pod)
			next.Since = minor
			if len(found) > 0 {
				last := found[len(found)-1]
				last.Since = minor
				if reflect.DeepEqual(last, next) {
					continue
				}
			}
			found = append(found, next)
		}
		return found
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for in.More() {
		pod := &corev1.Pod{}
		check(in.Decode(pod))
		latest := map[api.Level]verdict{}
		for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
			latest[level] = judge(level, api.LatestVersion(), pod)
		}
		check(lines.Encode(verdicts{
			Baseline: everywhere(api.LevelBaseline, pod), Restricted: everywhere(api.LevelRestricted, pod), Latest: latest,
		}))
	}
}

func corpus(folder string, tell func(placed)) {
	check(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		place, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(text, pod); err != nil {
			return err
		}
		for i := range pod.Spec.Volumes {
			// As the API server fills it in.
			if source := &pod.Spec.Volumes[i].VolumeSource; *source == (corev1.VolumeSource{}) {
				source.EmptyDir = &corev1.EmptyDirVolumeSource{}
			}
		}
		tell(placed{filepath.ToSlash(place), pod})
		return nil
	}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
