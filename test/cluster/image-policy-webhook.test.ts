import assert from "node:assert/strict";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { readServiceKubeconfig } from "../../infra/config/kubeconfig.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootClusters, type TestCluster } from "../control-plane/cluster.ts";
import { openImageBackend } from "../parity/image-backend.ts";
import { applyConfigurations, extendWebhookTimeoutsForTests, serveTestRules } from "../parity/rule-server.ts";
import { openScriptedWebhookEndpoints, type TestEndpointScript } from "../parity/scripted-endpoints.ts";
import { needs } from "../parts.ts";

// The plugin and the rule both call a backend that requires a client certificate. The backend must
// get equally many calls from the plugin and from the rule.
const catalogue = (await readCatalogue()).filter(({ name }) => name === "image-policy-webhook");
/** Settings of plugin and rule: those of `approvals` cache only approvals, and those of `denials` only denials. */
const variants = {
  approvals: { allowTTL: 1800, denyTTL: 1, retryBackoff: 1 },
  denials: { allowTTL: 1, denyTTL: 1800, retryBackoff: -1, defaultAllow: true },
} as const;
type Variant = keyof typeof variants;

/** The backend's answers to the calls for an image, by the image's name. The last answer is repeated. */
const answers: Record<string, ReturnType<TestEndpointScript>[]> = {
  approved: [{ body: '{"status": {"allowed": true}}' }],
  denied: [{ body: '{"status": {"allowed": false, "reason": "unsigned"}}' }],
  "approved-later": [{ code: 500, body: "" }, { code: 504, body: "" }, { body: '{"status": {"allowed": true}}' }],
  "denied-later": [{ code: 429, body: "" }, { body: '{"status": {"allowed": false}}' }],
  "approved-after-a-second": [
    { code: 503, headers: { "retry-after": "1" }, body: "" },
    { body: '{"status": {"allowed": true}}' },
  ],
  failing: [{ code: 500, body: "" }],
  // After 500, the call is always repeated; after 503, only if the answer has Retry-After.
  closed: [{ code: 503, body: "" }],
  "approved-in-words": [{ body: '{"status": {"allowed": "true"}}' }],
  "with-a-number": [{ body: '{"status": {"allowed": true, "auditAnnotations": {"odd": 1}}}' }],
  "with-null": [{ body: '{"status": {"allowed": true, "reason": null, "auditAnnotations": {"odd": null}}}' }],
  "with-a-list": [{ body: '{"status": {"allowed": false, "auditAnnotations": ["text"]}}' }],
  "another-status": [{ code: 207, body: '{"status": {"allowed": true}}' }],
  unknown: [{ body: '{"kind": "Status", "apiVersion": "v1", "status": "Failure"}' }],
};
/**
 * The numbers of calls for two pods with the same image, by what the variant caches: approvals or denials. The second
 * pod is created more than a second later, when other answers aren't cached any more.
 */
const calls: Record<Variant, Record<keyof typeof answers, number>> = {
  approvals: {
    approved: 1,
    denied: 2,
    "approved-later": 3,
    "denied-later": 3,
    "approved-after-a-second": 2,
    failing: 10,
    closed: 2,
    "approved-in-words": 2,
    "with-a-number": 2,
    "with-null": 1,
    "with-a-list": 2,
    "another-status": 2,
    unknown: 2,
  },
  denials: {
    approved: 2,
    denied: 1,
    "approved-later": 4,
    "denied-later": 2,
    "approved-after-a-second": 3,
    failing: 10,
    closed: 2,
    "approved-in-words": 2,
    "with-a-number": 2,
    "with-null": 2,
    "with-a-list": 2,
    "another-status": 2,
    unknown: 2,
  },
};

describe("image-policy-webhook beside its plugin", await needs("API server"), () => {
  const stack = new AsyncDisposableStack();
  const received: string[] = [];
  let pluginClusters: Record<Variant, TestCluster>;
  let ruleClusters: Record<Variant, TestCluster>;

  /** Answers a call by its image and by the number of earlier calls of the same variant for this image. */
  const createScript =
    (side: string): TestEndpointScript =>
    (review) => {
      const [image = ""] = Object(Object(review).spec).containers.map((one: { image: string }) => one.image);
      const call = `${side} ${image}`;
      // An image is VARIANT/NAME:1.
      const replies = answers[image.split("/")[1]?.split(":")[0] ?? ""] ?? [];
      const count = received.filter((receivedCall) => receivedCall === call).length;
      received.push(call);
      return replies[Math.min(count, replies.length - 1)];
    };

  /** Returns the options of a cluster with the plugin. */
  const configurePlugin = async (variant: Variant, folder: string, kubeConfigFile: string) => {
    const configuration = { imagePolicy: { ...variants[variant], kubeConfigFile } };
    const body = {
      apiVersion: "apiserver.config.k8s.io/v1",
      kind: "AdmissionConfiguration",
      plugins: [{ name: "ImagePolicyWebhook", configuration }],
    };
    const file = join(folder, `${variant}.json`);
    await writeFile(file, JSON.stringify(body));
    const flags = [`--admission-control-config-file=${file}`];
    return { disable: ["ServiceAccount"], enable: ["ImagePolicyWebhook"], flags };
  };

  before(async () => {
    const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "postern-images-")));
    const scripts = { upstream: createScript("upstream"), ours: createScript("ours") };
    const kubeconfigs = await openImageBackend(folder, stack, scripts);
    const clusters = await bootClusters(await requireBinaries(), [
      await configurePlugin("approvals", folder, kubeconfigs.upstream),
      await configurePlugin("denials", folder, kubeconfigs.upstream),
      { disable: ["ServiceAccount"] },
      { disable: ["ServiceAccount"] },
    ]);
    for (const { stop } of clusters) stack.defer(stop);
    const [first, second, third, fourth] = clusters as [TestCluster, TestCluster, TestCluster, TestCluster];
    pluginClusters = { approvals: first, denials: second };
    ruleClusters = { approvals: third, denials: fourth };

    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const { detector, stop } = await openScriptedWebhookEndpoints(certificate);
    stack.defer(stop);
    const backend = await readServiceKubeconfig(kubeconfigs.ours);
    for (const [name, imagePolicy] of Object.entries(variants)) {
      const yaml = JSON.stringify({ rules: { "image-policy-webhook": { settings: { imagePolicy, backend } } } });
      const openCapabilities = createLiveCapabilities({});
      const served = await serveTestRules(catalogue, yaml, { certificate, openCapabilities });
      stack.defer(served.stop);
      const { admin } = ruleClusters[name as Variant];
      await applyConfigurations(admin, extendWebhookTimeoutsForTests(served.manifests()), detector);
    }
  });
  after(() => stack.disposeAsync());

  /**
   * Creates a pod for each answer, and returns the API server's answers, without the webhook's name at the start of a
   * denial.
   */
  const createPods = ({ admin }: TestCluster, variant: Variant) =>
    Promise.all(
      Object.keys(answers).map(async (name) => {
        const spec = { containers: [{ name: "c", image: `${variant}/${name}:1` }] };
        const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, spec };
        const path = "/api/v1/namespaces/default/pods?dryRun=All";
        const { code, body } = await admin({ method: "POST", path, body: pod });
        const message = String(body.message).replace(/^admission webhook "\S+" denied the request: /, "");
        // If the backend gives no usable answer, the rule's text differs from the plugin's.
        return { name, code, ...(isUsable(name) && { message }) };
      }),
    );
  const unusable = "failing closed approved-in-words with-a-number with-a-list another-status unknown".split(" ");
  const isUsable = (name: string) => !unusable.includes(name);
  const createPodsTwice = async (cluster: TestCluster, variant: Variant) => {
    const first = await createPods(cluster, variant);
    await wait(1500);
    return [first, await createPods(cluster, variant)];
  };

  for (const variant of ["approvals", "denials"] as const)
    it(`image-policy-webhook caches ${variant}, and repeats failed calls, as often as its plugin does`, async () => {
      const [wanted, actual] = await Promise.all(
        [pluginClusters, ruleClusters].map((clusters) => createPodsTwice(clusters[variant], variant)),
      );
      assert.deepEqual(actual, wanted);
      for (const side of ["upstream", "ours"])
        for (const [name, count] of Object.entries(calls[variant])) {
          const call = `${side} ${variant}/${name}:1`;
          assert.equal(received.filter((receivedCall) => receivedCall === call).length, count, call);
        }
    });
});
