import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { parse, stringify } from "yaml";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { openClusterApi } from "../../infra/clusters/access.ts";
import { inspectCluster, toInspected } from "../../infra/clusters/inspection.ts";
import { requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { bootCluster, type Cluster } from "../../infra/parity/control-plane/cluster.ts";
import { extendTimeouts, registerConfigurations, serveCatalogue, waitUntil } from "../../infra/parity/rule-server.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildConfigurations } from "../../infra/webhooks/configurations.ts";
import { kubeconfigOf } from "../checkout.ts";
import { needs } from "../parts.ts";

// Policies in a real cluster: written, checked, found by those who make entries, and applied to what its users write.
const catalogue = await readCatalogue();
const crds = new URL("../../functions/policy-admission/crds/", import.meta.url);
const group = "/apis/policy.kcloudlabs.io/v1alpha1";
const rules = { "policy-override": null, "policy-validate": null, "policy-admission": null };
const yaml = stringify({ rules, clusters: { local: { connect: { kubeconfig: "nobody" } } } });
const policy = (kind: string, name: string, spec: object) => {
  return { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind, metadata: { name }, spec };
};
const configMaps = [{ apiVersion: "v1", kind: "ConfigMap" }];
const owner = policy("ClusterOverridePolicy", "owner", {
  resourceSelectors: configMaps,
  overrideRules: [
    { overriders: { template: { type: "annotations", operation: "add", path: "owner", value: { string: "web" } } } },
  ],
});
const kept = policy("ClusterValidatePolicy", "kept", {
  resourceSelectors: configMaps,
  validateRules: [
    {
      targetOperations: ["DELETE"],
      cue: 'object: _\nvalidate: {if object.metadata.labels.keep != _|_ {valid: false, reason: "\\(object.metadata.name) is kept"}}',
    },
  ],
});

describe("policies in a real cluster", await needs("API server"), () => {
  let cluster: Cluster;
  let served: Awaited<ReturnType<typeof serveCatalogue>>;
  let folder: string;

  before(async () => {
    const binaries = await requireBinaries();
    cluster = await bootCluster(binaries);
    folder = await mkdtemp(join(tmpdir(), "postern-surveyed-"));
    const { server, ca } = cluster;
    const token = cluster.tokenOf("admin");
    await writeFile(join(folder, "kubeconfig"), kubeconfigOf({ local: cluster }));
    served = await serveCatalogue(yaml, createLiveCapabilities({ local: { server, ca, credentials: { token } } }));
  });
  after(async () => {
    await Promise.all([served?.stop(), cluster?.stop()]);
    if (folder) await rm(folder, { recursive: true });
  });

  const look = async () => {
    const [local] = parseConfig(yaml, catalogue).clusters.values();
    assert.ok(local);
    const open = async () =>
      toInspected(await openClusterApi("local", undefined, { kubeconfig: join(folder, "kubeconfig") }));
    return inspectCluster(catalogue, local, open);
  };
  /** The entries of what was found, as those of the admission of policies are served. */
  const entries = async () => {
    const [first] = served.manifests();
    const { url = "", caBundle = "" } = first?.webhooks[0]?.clientConfig ?? {};
    const { cluster: found, notes } = await look();
    const base = url.replace(/\/policy-admission\/mutate$/, "");
    const address = (rule: string, path: string) => `${base}/${rule}/${path}`;
    const ca = Buffer.from(caBundle, "base64").toString();
    return { made: buildConfigurations(catalogue, found, { name: "found", address, ca, harden: false }), notes };
  };
  const names = ({ made }: Awaited<ReturnType<typeof entries>>) =>
    made.flatMap(({ webhooks }) => webhooks.map(({ name }) => name.replace(".postern.dev", "")));
  const post = (path: string, body: object) => cluster.admin({ method: "POST", path, body });

  it("have no entries where there are no kinds for them, and that is said", async () => {
    const found = await entries();
    assert.deepEqual(names(found), ["policy-admission", "policy-admission"]);
    assert.match(found.notes.join(), /functions\/policy-admission\/crds holds them/);
  });

  it("are admitted into kinds that the API server takes, completed, or refused", async () => {
    for (const file of await readdir(crds)) {
      const body = parse(await readFile(new URL(file, crds), "utf8"));
      const { code, body: said } = await post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body);
      assert.equal(code, 201, String(said.message));
    }
    await waitUntil("it does not come to that", async () =>
      (
        await Promise.all(
          ["clusteroverridepolicies", "clustervalidatepolicies"].map((one) =>
            cluster.admin({ method: "GET", path: `${group}/${one}` }),
          ),
        )
      ).every(({ code }) => code === 200),
    );
    await registerConfigurations(cluster.admin, extendTimeouts(served.manifests()));
    const odd = policy("ClusterOverridePolicy", "odd", {
      overrideRules: [{ overriders: { template: { type: "labels", operation: "add", path: "a" } } }],
    });
    await waitUntil(
      "it does not come to that",
      async () => (await post(`${group}/clusteroverridepolicies?dryRun=All`, odd)).code === 403,
    );
    const refused = await post(`${group}/clusteroverridepolicies`, odd);
    assert.match(String(refused.body.message), /policy-admission\.postern\.dev.*overriders\.template.*value/);
    const made = await post(`${group}/clusteroverridepolicies`, owner);
    assert.equal(made.code, 201, String(made.body.message));
    assert.match(JSON.stringify(made.body), /"renderedCue":"data: _ @tag\(data\)/);
    assert.match(made.warnings.join(), /no entry of policy-override sends it CREATE, UPDATE of configmaps/);
    assert.equal((await post(`${group}/clustervalidatepolicies`, kept)).code, 201);
  });

  it("have entries for what they are about, and are applied then", async () => {
    const found = await entries();
    assert.deepEqual(names(found), ["policy-admission", "policy-override", "policy-admission", "policy-validate"]);
    assert.deepEqual(found.notes, []);
    await registerConfigurations(cluster.admin, extendTimeouts(found.made));
    const maps = "/api/v1/namespaces/default/configmaps";
    const map = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a", labels: { keep: "yes" } } };
    await waitUntil("it does not come to that", async () => {
      const { body } = await post(`${maps}?dryRun=All`, map);
      return Object(body.metadata).annotations?.owner === "web";
    });
    assert.equal((await post(maps, map)).code, 201);
    const deleted = await cluster.admin({ method: "DELETE", path: `${maps}/a` });
    assert.equal(deleted.code, 403, String(deleted.body.message));
    assert.match(String(deleted.body.message), /denied the request: a is kept$/);
    const { code, warnings } = await post(`${group}/clusteroverridepolicies?dryRun=All`, {
      ...owner,
      metadata: { name: "another" },
    });
    assert.deepEqual([code, warnings], [201, []]);
  });
});
