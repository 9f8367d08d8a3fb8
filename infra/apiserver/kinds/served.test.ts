import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import { readRows } from "../../../test/rows.ts";
import { createRecordedCluster, findServedResource, listServedResources } from "./served.ts";

type RecordedObject = NonNullable<RecordedCapabilityAnswers["objects"]>[number];

const { lookups, definition, customObject } = readRows<{
  /** Lookups of the resource that serves `object`; without `expectedResource`, or with null, none should be found. */
  lookups: [
    name: string,
    objectsInCluster: RecordedObject[],
    object: RecordedObject,
    expectedResource?: object | null,
    kubernetes?: string,
  ][];
  definition: RecordedObject;
  customObject: RecordedObject;
}>(import.meta.filename);

describe("served kinds: a lookup", () => {
  for (const [name, objects, object, expected, kubernetes] of lookups)
    it(name, () =>
      assert.deepEqual(findServedResource(listServedResources(objects, kubernetes), object), expected ?? undefined),
    );
});

describe("a cluster of recorded objects", () => {
  const geese = { group: "example.com", version: "v1", resource: "geese" };

  it("a cluster of recorded objects finds objects by the plural that their definition sets", async () => {
    const cluster = createRecordedCluster({ objects: [definition, customObject] });
    assert.equal((await cluster.get(geese, "a", "pond"))?.kind, "Goose");
    assert.equal((await cluster.list(geese)).length, 1);
    await cluster.create(geese, { ...customObject, metadata: { name: "b", namespace: "pond" } });
    assert.equal((await cluster.list(geese, "pond")).length, 2);
  });

  it("a cluster of recorded objects uses a recorded discovery instead of the built-in kinds", async () => {
    const discovery = { v1: [{ resource: "pods", kind: "Pod", namespaced: false }] };
    const cluster = createRecordedCluster({ discovery });
    assert.deepEqual(await cluster.discover("v1"), discovery.v1);
    assert.equal((await cluster.discover("apps/v1"))?.length, 5, "the built-in kinds");
    assert.equal(await cluster.discover("example.com/v1"), undefined);
  });
});
