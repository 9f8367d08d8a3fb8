import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { parseAllDocuments, stringify } from "yaml";
import { toApiPath } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { createTestFolder } from "../folders.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { runVerb } from "../verb.ts";

// Tests that `npx postern check --live --save FILE` writes all objects of a cluster that `--state` needs.
interface Fixtures {
  clusterYaml: string;
  savedKindsAndNames: string[];
  manifests: { verdict: string; object: KubernetesObject }[];
}

describe("a cluster that is saved", await needs("API server", "Kubernetes module"), () => {
  const fixtures = readRows<Fixtures>(import.meta.filename);
  const objects = parseAllDocuments(fixtures.clusterYaml).map((document): KubernetesObject => document.toJS());
  const kinds = buildKindIndex(objects);
  let cluster: TestCluster;
  let folder: string;
  /** The file that a check of the complete cluster saved. */
  let savedText = "";

  const createObject = ({ apiVersion = "", kind = "", ...rest }: KubernetesObject, query = "") => {
    const kindEntry = kinds.of(apiVersion, kind);
    const namespacePath = kindEntry?.namespaced ? `/namespaces/${rest.metadata?.namespace}` : "";
    const path = `${toApiPath(apiVersion)}${namespacePath}/${kindEntry?.resource.resource}${query}`;
    return cluster.admin({ method: "POST", path, body: { apiVersion, kind, ...rest } });
  };
  const check = (...words: string[]) => runVerb(folder, ["check", ...words]);

  before(async () => {
    folder = await createTestFolder();
    cluster = await bootCluster(await requireBinaries(), { disable: ["ServiceAccount", "ResourceQuota"], rbac: true });
    for (const object of objects) {
      const { code, body } = await createObject(object);
      assert.equal(code, 201, String(body.message));
    }
    await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ c: cluster }));
    await writeFile(join(folder, "janes"), buildKubeconfig({ c: cluster }, "jane"));
    const { code, stderr, stdout } = await check("--live", "--kubeconfig", "kubeconfig", "--save", "state.yaml");
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^state\.yaml has \d+ objects of cluster /);
    savedText = await readFile(join(folder, "state.yaml"), "utf8");
  });
  after(() => cluster.stop());

  it("a saved cluster is a sorted file with all objects that a check reads, and with no other objects", () => {
    const savedObjects = parseAllDocuments(savedText).map((document) => document.toJS());
    const names = savedObjects.map(
      ({ kind, metadata: { namespace, name } }) => `${kind} ${namespace ? `${namespace}/` : ""}${name}`,
    );
    assert.deepEqual(
      names.filter((name) => !/^Namespace (default|kube-)|^PriorityClass system-/.test(name)),
      fixtures.savedKindsAndNames,
    );
    for (const { metadata } of savedObjects)
      assert.deepEqual(
        Object.keys(metadata).filter((key) => !/^(name|namespace|labels|annotations|creationTimestamp)$/.test(key)),
        [],
      );
    assert.doesNotMatch(savedText, /hidden/);
    assert.match(savedText, /owner: team-shop/);
  });

  it("check gives from the saved file the verdicts that the cluster gives", async () => {
    // Policies have an effect only some time after their creation.
    const [refused] = fixtures.manifests;
    await waitUntil(
      "the policy has no effect",
      async () => (await createObject(refused?.object ?? {}, "?dryRun=All")).code === 422,
    );
    for (const [index, { verdict, object }] of fixtures.manifests.entries()) {
      await writeFile(join(folder, "object.yaml"), stringify(object));
      const plugins = "--plugins=-ServiceAccount,-ResourceQuota";
      const options = ["--state", "state.yaml", "--rules=always-admit", plugins, "--no-pod-templates", "-o", "json"];
      const { stdout, stderr } = await check("object.yaml", ...options);
      const [checked] = JSON.parse(stdout || "{}").objects ?? [];
      assert.equal(checked?.verdict, verdict, `object ${index}: ${stdout}${stderr}`);
      if (verdict === "undecided") continue;
      const { code, body } = await createObject(object, "?dryRun=All&fieldValidation=Strict");
      assert.equal(code < 300 ? "allowed" : "denied", verdict, `object ${index}: ${body.message}`);
    }
  });

  it("a cluster is not saved at all if the user may not read everything", async () => {
    const { code, stderr } = await check("--live", "--kubeconfig", "janes", "--save", "janes.yaml");
    assert.equal(code, 3, stderr);
    assert.match(stderr, /^namespaces can't be read, so nothing is saved: /m);
    assert.ok(!(await readdir(folder)).some((name) => name.startsWith("janes.yaml")));
  });

  it("with --namespace, a saved cluster has one namespace's objects, and all objects outside namespaces", async () => {
    const options = "--live --kubeconfig kubeconfig --namespace default --save default.yaml";
    const { code, stderr } = await check(...options.split(" "));
    assert.equal(code, 0, stderr);
    const parse = (yaml: string) => parseAllDocuments(yaml).map((document) => document.toJS());
    const ofDefault = parse(await readFile(join(folder, "default.yaml"), "utf8"));
    const isGlobal = ({ kind, metadata }: KubernetesObject) =>
      kind !== "Namespace" && metadata?.namespace === undefined;
    assert.deepEqual(ofDefault.filter(isGlobal), parse(savedText).filter(isGlobal));
    // The namespace `shop` has the only LimitRange.
    assert.ok(!ofDefault.some(({ kind, metadata }) => kind === "LimitRange" || metadata.name === "shop"));
  });

  it("a saved cluster has no objects, not even namespaces, if its file is empty", async () => {
    await writeFile(join(folder, "empty.yaml"), "# nothing\n");
    await writeFile(join(folder, "object.yaml"), stringify(fixtures.manifests[1]?.object));
    const { code, stdout } = await check("object.yaml", "--state", "empty.yaml");
    assert.deepEqual([code, /namespaces "shop" not found/.test(stdout)], [1, true], stdout);
  });
});
