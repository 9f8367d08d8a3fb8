import { nullable, operation } from "./text.ts";

export const inputs = ["object: data.object", "kind: object.kind"];

/** CUE that defines `place` and `podSpec` by the object's kind, in any group. */
export const podSpec = `// where the specification of the pods is; other kinds have none
templated: ["ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"]
place: [
	if kind == "Pod" {"/spec"},
	if list.Contains(templated, kind) {"/spec/template/spec"},
	if kind == "CronJob" {"/spec/jobTemplate/spec/template/spec"},
	"",
][0]
podSpec: (null | {...}) & [
	if place == "/spec" if object.spec != _|_ {object.spec},
	if place == "/spec/template/spec" if object.spec.template.spec != _|_ {object.spec.template.spec},
	if kind == "CronJob" if object.spec.jobTemplate.spec.template.spec != _|_ {object.spec.jobTemplate.spec.template.spec},
	null,
][0]`;

/** CUE that defines the first container and these lists of its resources; each is null if missing. */
export const firstContainer = (...lists: string[]): string =>
  [
    "// of the first container",
    nullable("containers", "podSpec.containers", "[...]"),
    nullable("container", "containers[0]", "{...}"),
    nullable("resources", "container.resources", "{...}"),
    ...lists.map((list) => nullable(list, `resources.${list}`, "{...}")),
  ].join("\n");

export const below = (...steps: string[]): string => `"\\(place)/${steps.join("/")}"`;

export const made = (name: string, path: string): string => operation("add", path, "{}", `if ${name} == null`);

export const patchesIf = (needed: string, operations: string): string =>
  `unFlattenPatches: [if ${needed} != null {${operations}}]\npatches: list.FlattenN(unFlattenPatches, 1)`;

export const listOrEmpty = (name: string, place: string): string =>
  `${name}: [...] & [if ${place} != _|_ if ${place} != null {${place}}, []][0]`;
