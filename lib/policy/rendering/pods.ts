import { nullable, operation } from "./text.ts";

/** What renderings need of an object that has pods, or makes them. */
export const inputs = ["object: data.object", "kind: object.kind"];

/** Where an object's pod spec is, and what it says. By kind, whatever the group. */
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

/** The first container of a pod spec, and what it has of these. */
export const firstContainer = (...lists: string[]): string =>
  [
    "// of the first container",
    nullable("containers", "podSpec.containers", "[...]"),
    nullable("container", "containers[0]", "{...}"),
    nullable("resources", "container.resources", "{...}"),
    ...lists.map((list) => nullable(list, `resources.${list}`, "{...}")),
  ].join("\n");

/** A path below the pod spec. */
export const below = (...steps: string[]): string => `"\\(place)/${steps.join("/")}"`;

/** Makes a map that isn't there. */
export const made = (name: string, path: string): string => operation("add", path, "{}", `if ${name} == null`);

/** The patch, empty where something isn't there that it needs. */
export const patchesIf = (needed: string, operations: string): string =>
  `unFlattenPatches: [if ${needed} != null {${operations}}]\npatches: list.FlattenN(unFlattenPatches, 1)`;

/** A list, empty where there is none. */
export const listOrEmpty = (name: string, place: string): string =>
  `${name}: [...] & [if ${place} != _|_ if ${place} != null {${place}}, []][0]`;
