import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createDraft } from "#lib/core/patch.ts";
import type { Pod, Volume } from "../kubernetes/core/v1.ts";
import { listContainers, listImageVolumes } from "./pod.ts";

const volumes: Volume[] = [{ name: "v" }, { name: "w", image: { reference: "w" } }];
const pod: Pod = {
  spec: {
    containers: [{ name: "c" }, { name: "d" }],
    initContainers: [{ name: "i" }],
    ephemeralContainers: [{ name: "e" }],
    volumes,
  },
};

describe("a pod's containers", () => {
  const listNamesAndPaths = (...args: Parameters<typeof listContainers>) =>
    listContainers(...args).map(({ container, path }) => [container.name, path]);

  it("a pod's containers are listed from all three lists in order, each with its path", () => {
    assert.deepEqual(listNamesAndPaths(pod), [
      ["i", "spec.initContainers[0]"],
      ["c", "spec.containers[0]"],
      ["d", "spec.containers[1]"],
      ["e", "spec.ephemeralContainers[0]"],
    ]);
  });

  it("a pod's containers can be listed by kind", () => {
    assert.deepEqual(listNamesAndPaths(pod, ["ephemeralContainers"]), [["e", "spec.ephemeralContainers[0]"]]);
  });

  it("a pod's containers are none if there is no spec or no list", () => {
    assert.deepEqual(listNamesAndPaths({}), []);
    assert.deepEqual(listNamesAndPaths({ spec: { containers: [] } }), []);
  });

  it("a pod's containers can be edited in place", () => {
    const { value, changes } = createDraft(pod);
    for (const { container } of listContainers(value, ["initContainers"])) container.image = "x";
    assert.deepEqual(changes(), [{ op: "add", path: "/spec/initContainers/0/image", value: "x" }]);
  });
});

describe("a pod's image volumes", () => {
  it("a pod's image volumes are the volumes with an image, each with its path", () => {
    assert.deepEqual(listImageVolumes(pod), [{ image: { reference: "w" }, path: "spec.volumes[1].image" }]);
  });

  it("a pod's image volumes are none if there are no volumes", () => assert.deepEqual(listImageVolumes({}), []));
});
