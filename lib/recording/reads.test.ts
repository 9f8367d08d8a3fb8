import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createDraft } from "../core/patch.ts";
import { freezeDeep } from "../json.ts";
import { createFieldReadTracker, type FieldReadTracker } from "./reads.ts";

const buildPod = () => ({
  metadata: { name: "web", annotations: { a: "one", b: "two" } as Record<string, string> },
  spec: { containers: [{ name: "main", args: ["x", "y"], image: "app" }] },
});
type Pod = ReturnType<typeof buildPod>;

/** Returns the texts that a rule read from a pod. */
const readOf = (rule: (pod: Pod) => unknown, pod = buildPod()): string[] => {
  const reads = createFieldReadTracker();
  rule(reads.watch(pod));
  return listTexts(pod, reads);
};
const listTexts = (value: unknown, reads: FieldReadTracker): string[] =>
  typeof value !== "object" || value === null
    ? []
    : Object.entries(value).flatMap(([key, member]) =>
        typeof member === "string" ? (reads.has(value, key) ? [member] : []) : listTexts(member, reads),
      );

const trackedReads: [what: string, rule: (pod: Pod) => unknown, expected: string[]][] = [
  ["a member", ({ metadata }) => metadata.name, ["web"]],
  ["a key that the rule knows", (pod) => pod.metadata.annotations.a, ["one"]],
  ["members of a list's elements", (pod) => pod.spec.containers.map(({ image }) => image), ["app"]],
  [
    "members of elements that were listed",
    (pod) => Object.values(pod.spec.containers).map(({ name }) => name),
    ["main"],
  ],
  ["a list of texts", (pod) => pod.spec.containers[0]?.args.includes("none"), ["x", "y"]],
  [
    "a member that was read before the rule listed all members",
    (pod) => [pod.metadata.annotations.a, Object.values(pod.metadata.annotations)],
    ["one"],
  ],
  [
    "none if all keys are listed and each member is read several times",
    (pod) => {
      const { annotations } = pod.metadata;
      const keys = Object.keys(annotations).filter((key) => annotations[key]);
      return keys.map((key) => annotations[key] && annotations[key]);
    },
    [],
  ],
  [
    "none if a key is only looked for",
    (pod) => "a" in pod.metadata.annotations && Object.hasOwn(pod.metadata, "name"),
    [],
  ],
  ["none if the pod is converted to JSON", (pod) => JSON.stringify(pod), []],
  ["none if objects are copied", (pod) => ({ ...pod.metadata, ...pod.spec.containers[0] }), []],
  ["none if the pod is compared with another pod", (pod) => assert.deepEqual(pod, buildPod()), []],
  [
    "none if all entries are searched for a value",
    (pod) => Object.entries(pod.metadata.annotations).find(([, value]) => value === "two"),
    [],
  ],
  [
    "none if all keys are listed and each member is read",
    (pod) => Object.keys(pod.metadata.annotations).map((key) => pod.metadata.annotations[key]),
    [],
  ],
  [
    "only the named member if an object is destructured with a rest",
    (pod) => {
      const { name, ...rest } = pod.metadata;
      return [name, rest.annotations];
    },
    ["web"],
  ],
  [
    "none if all members of an object are listed, and a list among them is copied",
    (pod) => Object.values(pod.spec.containers[0] ?? {}).flatMap((value) => [...value]),
    [],
  ],
];

describe("the tracked reads of a rule", () => {
  for (const [what, rule, expected] of trackedReads) {
    it(`are ${what}`, () => assert.deepEqual(readOf(rule), expected));
    it(`are ${what} of a frozen object`, () => assert.deepEqual(readOf(rule, freezeDeep(buildPod())), expected));
    it(`are ${what} of a draft`, () => {
      const [reads, pod] = [createFieldReadTracker(), buildPod()];
      rule(reads.watch(createDraft(pod).value));
      assert.deepEqual(listTexts(pod, reads), expected);
    });
  }

  it("the tracked reads of a rule don't include values that the rule wrote", () => {
    const [reads, sample] = [createFieldReadTracker(), buildPod()];
    const pod = reads.watch(createDraft(sample).value);
    pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata.annotations, a: "mine" } };
    assert.equal(pod.metadata.annotations.a, "mine");
    pod.spec.containers[0]?.args.unshift("first");
    assert.deepEqual(listTexts(sample, reads), ["x", "y"], "unshift reads the elements of a list to move them");
    assert.equal(sample.metadata.annotations.a, "one");
  });

  it("the tracked reads of a rule don't include reads after the evaluation", () => {
    const [reads, sample] = [createFieldReadTracker(), buildPod()];
    const pod = reads.watch(sample);
    reads.close();
    assert.equal(pod.metadata.name, "web");
    assert.deepEqual(listTexts(sample, reads), []);
  });
});
