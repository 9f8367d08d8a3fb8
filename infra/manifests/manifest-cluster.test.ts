import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { stringify } from "yaml";
import { Failure } from "#lib/failure.ts";
import {
  buildNamespace,
  buildObject,
  namespaces,
  objects,
  testDefaults,
  testObjects,
  user,
} from "../../test/capabilities.ts";
import { createTestFolder } from "../../test/folders.ts";
import { Complaint } from "../cli/complaint.ts";
import { type ManifestCluster, readManifestCluster } from "./manifest-cluster.ts";

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
    cluster = await readManifestCluster(folder);
  });

  testObjects(() => cluster);
  testDefaults(() => cluster);

  it("a folder of manifests has a cluster's initial objects, and its objects are in `default` by default", async () => {
    const pod = buildObject("Pod", "lonely");
    const { get } = await readFiles({ "pod.json": JSON.stringify(pod) });
    assert.equal((await get(namespaces, "kube-system"))?.kind, "Namespace");
    assert.equal((await get({ group: "", resource: "pods" }, "lonely", "default"))?.metadata?.namespace, "default");
  });

  it("a folder of manifests has the initial objects of every namespace, unless a manifest replaces them", async () => {
    const serviceAccount = buildObject("ServiceAccount", "default", "b", { imagePullSecrets: [{ name: "pull" }] });
    const { get } = await readFiles({
      "all.json": JSON.stringify(buildNamespace("b")),
      "own.json": JSON.stringify(serviceAccount),
    });
    const getAccount = async (namespace: string) =>
      get({ group: "", resource: "serviceaccounts" }, "default", namespace);
    assert.equal((await getAccount("kube-system"))?.kind, "ServiceAccount");
    assert.deepEqual(Object(await getAccount("b")).imagePullSecrets, [{ name: "pull" }]);
    assert.equal(await getAccount("none"), undefined);
    assert.equal((await get({ group: "", resource: "configmaps" }, "kube-root-ca.crt", "b"))?.kind, "ConfigMap");
  });

  it("a folder of manifests answers only the access reviews that it has", async () => {
    const question = { user, verb: "get", resource: "pods" };
    const sentence =
      /^a folder of manifests has no authorizer; only a cluster, or a SubjectAccessReview with its status among the manifests, can answer access reviews$/;
    await assert.rejects(
      () => cluster.may(question),
      (error) => error instanceof Failure && error.code === 503 && sentence.test(error.message),
    );
    const spec = { user: user.username, resourceAttributes: { verb: "get", resource: "pods" } };
    const review = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec };
    const { may } = await readFiles({ "may.json": JSON.stringify({ ...review, status: { allowed: true } }) });
    assert.equal((await may(question)).allowed, true);
    await assert.rejects(may({ ...question, verb: "delete" }), Failure);
  });

  it("a folder of manifests has its keys merged, and the items of all Lists with their kind", async () => {
    const { list } = await readFiles({
      "merged.yaml": [
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata: { name: a, labels: { tier: cheap } }",
        "---",
        "apiVersion: v1",
        "kind: ConfigMapList",
        "items:",
        "  - metadata: &base { name: b, labels: { tier: cheap } }",
        "    data: { is: first }",
        "  - metadata: { <<: *base, name: c, namespace: default }",
        "",
      ].join("\n"),
    });
    assert.deepEqual(
      (
        await list({ group: "", resource: "configmaps" }, "default", { labels: { matchLabels: { tier: "cheap" } } })
      ).map(({ apiVersion, kind, metadata }) => [apiVersion, kind, metadata?.name]),
      ["a", "b", "c"].map((name) => ["v1", "ConfigMap", name]),
    );
  });

  const readFiles = async (files: Record<string, string>) => {
    const subfolder = await mkdtemp(join(folder, "own-"));
    for (const [name, text] of Object.entries(files)) await writeFile(join(subfolder, name), text);
    return readManifestCluster(subfolder).finally(() => rm(subfolder, { recursive: true }));
  };
  const wrong: [name: string, text: string, sentence: RegExp][] = [
    ["that is not YAML", "kind: A\n---\nb: [", /^a\.yaml:3 is no YAML: /],
    [
      "without a kind",
      "kind: Pod\n---\nmetadata: {}",
      /^a\.yaml:1 is no manifest: it must have an apiVersion and a kind; a\.yaml:3 is no/,
    ],
    ["that is a number", "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\n---\n5", /^a\.yaml:5 is no manifest/],
    [
      "without a name",
      "apiVersion: v1\nkind: Pod\nmetadata: { generateName: a }",
      /^a\.yaml:1 must have a metadata\.name/,
    ],
    [
      "with a repeated key",
      "apiVersion: v1\nkind: Pod\nkind: Pod\n",
      /^a\.yaml:3 is no YAML: the key kind is there twice$/,
    ],
  ];
  for (const [name, text, sentence] of wrong)
    it(`refuses a manifest ${name}, with the name of its file`, () =>
      assert.rejects(
        readFiles({ "a.yaml": text }),
        (error) => error instanceof Complaint && sentence.test(error.message),
      ));
});
