import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { stringify } from "yaml";
import { Failure } from "#lib/failure.ts";
import { buildNamespace, buildObject, namespaces, objects, testObjects, user } from "../../test/capabilities.ts";
import { createTestFolder } from "../../test/folders.ts";
import { Complaint } from "../cli/complaint.ts";
import { createManifestCluster, type ManifestCluster, readManifestFolder } from "./manifest-cluster.ts";

const folder = await createTestFolder();

describe("a cluster made of a folder of manifests", () => {
  let cluster: ManifestCluster;
  before(async () => {
    await mkdir(join(folder, "more", "deep"), { recursive: true });
    const [first, second, third, ...others] = objects;
    await writeFile(join(folder, "first.yaml"), `---\n${stringify(first)}---\n# nothing\n---\n${stringify(second)}`);
    await writeFile(join(folder, "third.json"), JSON.stringify(third));
    const list = { apiVersion: "v1", kind: "List", items: others };
    await writeFile(join(folder, "more", "deep", "others.yml"), stringify(list));
    await writeFile(join(folder, "more", "README.md"), "apiVersion: none");
    cluster = createManifestCluster(await readManifestFolder(folder));
  });

  testObjects(() => cluster);

  it("has the initial objects of every cluster, and puts objects without a namespace into `default`", async () => {
    const pod = buildObject("Pod", "lonely");
    const { get } = createManifestCluster(await readManifests({ "pod.json": JSON.stringify(pod) }));
    assert.equal((await get(namespaces, "kube-system"))?.kind, "Namespace");
    assert.equal((await get({ group: "", resource: "pods" }, "lonely", "default"))?.metadata?.namespace, "default");
  });

  it("has the initial objects of every namespace, unless a manifest replaces them", async () => {
    const own = buildObject("ServiceAccount", "default", "b", { imagePullSecrets: [{ name: "pull" }] });
    const { get } = createManifestCluster(
      await readManifests({ "all.json": JSON.stringify(buildNamespace("b")), "own.json": JSON.stringify(own) }),
    );
    const getAccount = async (namespace: string) =>
      get({ group: "", resource: "serviceaccounts" }, "default", namespace);
    assert.equal((await getAccount("kube-system"))?.kind, "ServiceAccount");
    assert.deepEqual(Object(await getAccount("b")).imagePullSecrets, [{ name: "pull" }]);
    assert.equal(await getAccount("none"), undefined);
    assert.equal((await get({ group: "", resource: "configmaps" }, "kube-root-ca.crt", "b"))?.kind, "ConfigMap");
  });

  it("refuses to answer access reviews", async () => {
    const sentence = /^a folder of manifests has no authorizer; only a cluster can answer access reviews$/;
    await assert.rejects(
      () => cluster.may({ user, verb: "get", resource: "pods" }),
      (error) => error instanceof Failure && error.code === 503 && sentence.test(error.message),
    );
  });

  const readManifests = async (files: Record<string, string>) => {
    const own = await mkdtemp(join(folder, "own-"));
    for (const [name, text] of Object.entries(files)) await writeFile(join(own, name), text);
    return readManifestFolder(own).finally(() => rm(own, { recursive: true }));
  };
  const wrong: [string, string, RegExp][] = [
    ["that is not YAML", "a: 1\n---\nb: [", /^a\.yaml:3 is no YAML: /],
    [
      "without a kind",
      "kind: Pod\n---\nmetadata: {}",
      /^a\.yaml, document 1, is no manifest: it must have an apiVersion/,
    ],
    ["that is a number", "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\n---\n5", /^a\.yaml, document 2, is no/],
  ];
  for (const [name, text, sentence] of wrong)
    it(`refuses a manifest ${name}, with the name of its file`, () =>
      assert.rejects(
        readManifests({ "a.yaml": text }),
        (error) => error instanceof Complaint && sentence.test(error.message),
      ));
});
