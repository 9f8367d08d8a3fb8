import assert from "node:assert/strict";
import { it } from "node:test";
import { describeUnknownMinor, newestKubernetes, oldestKubernetes } from "../lib/since.ts";
import { minors } from "./control-plane/binaries.ts";

it("the known minors of Kubernetes are those whose API servers are compared", () => {
  assert.deepEqual([oldestKubernetes, newestKubernetes], [minors.at(0), minors.at(-1)]);
});

it("an unknown minor is named, with the one that is assumed", () => {
  for (const minor of [undefined, ...minors]) assert.equal(describeUnknownMinor(minor), undefined);
  assert.equal(describeUnknownMinor("1.99"), `Kubernetes 1.99 isn't known here; ${newestKubernetes} is assumed`);
  assert.equal(describeUnknownMinor("1.9"), `Kubernetes 1.9 isn't known here; ${oldestKubernetes} is assumed`);
});
