import assert from "node:assert/strict";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterRequest } from "../control-plane/client.ts";
import { bootClusters, type TestCluster } from "../control-plane/cluster.ts";
import { applyConfigurations, extendWebhookTimeoutsForTests, serveTestRules } from "../parity/rule-server.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { runVerb } from "../verb.ts";

/** A request to both API servers, and the expected status code of their answers. */
interface Row {
  name: string;
  user?: "admin" | "system:node:n1";
  request: TestClusterRequest;
  /**
   * How often the request is sent, all at once; once by default. A rate limit refuses some of these requests, and how
   * many depends on the time. So for each status code, one answer of one server is compared with one of the other.
   */
  times?: number;
  /** The status code of the answer, or the highest status code if the request is sent several times. */
  code: number;
}
const { flags, configuration, rules, requests } = readRows<{
  flags: string[];
  configuration: object;
  rules: string[];
  requests: Row[];
}>(import.meta.filename);

// A self-managed API server has plugins by its flags. A managed API server has only the plugin NodeRestriction, and
// calls the rules that were imported from these flags.
describe("an imported postern.yaml", await needs("API server"), () => {
  const stack = new AsyncDisposableStack();
  let selfManaged: TestCluster;
  let managed: TestCluster;
  /** The postern.yaml that `postern import apiserver` prints. */
  let importedYaml = "";

  const send = async (cluster: TestCluster, { user = "admin", request, times = 1 }: Row) => {
    const answers = await Promise.all(Array.from({ length: times }, () => cluster.as(user)(request)));
    const byCode = new Map(answers.map((answer) => [answer.code, answer]));
    return [...byCode.values()]
      .toSorted((left, right) => left.code - right.code)
      .map(({ code, body: { message, spec } }) => ({
        code,
        // A denial by a webhook begins with the webhook's name, which is removed here.
        message: message && String(message).replace(/^admission webhook "\S+" denied the request: /, ""),
        spec,
      }));
  };

  before(async () => {
    const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "postern-imported-")));
    const config = join(folder, "admission.json");
    await writeFile(config, JSON.stringify(configuration));
    const clusters = await bootClusters(await requireBinaries(), [
      { flags: [...flags, `--admission-control-config-file=${config}`] },
      { enable: ["NodeRestriction"] },
    ]);
    for (const { stop } of clusters) stack.defer(stop);
    [selfManaged, managed] = clusters as [TestCluster, TestCluster];
    await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ managed }));

    // An API server has a metric of each plugin that it has called.
    for (const { admin } of [managed, selfManaged])
      await admin({ method: "POST", path: "/api/v1/nodes", body: { metadata: { name: "n2" } } });
    const options = ["--flags", flags.join(" "), "--config", config, "--live", "--kubeconfig", "kubeconfig"];
    const { code, stdout, stderr } = await runVerb(folder, ["import", "apiserver", ...options]);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    importedYaml = stdout;

    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    // The detector's webhook shows when the API server uses new webhook configurations.
    const { detector, stop } = await openScriptedWebhookEndpoints(certificate);
    stack.defer(stop);
    const { server, ca, getToken } = managed;
    const connections = { local: { server, ca, credentials: { token: getToken("admin") } } };
    const ledger = createMemoryLedger();
    const openCapabilities = createLiveCapabilities(connections, { openLedger: () => ledger });
    const served = await serveTestRules(await readCatalogue(), importedYaml, { certificate, openCapabilities });
    stack.defer(served.stop);
    await applyConfigurations(managed.admin, extendWebhookTimeoutsForTests(served.manifests()), detector);
  });
  after(() => stack.disposeAsync());

  it("an imported postern.yaml has the rules of the plugins that the cluster lacks", () => {
    assert.deepEqual(
      [...importedYaml.matchAll(/^ {2}([a-z-]+):$/gm)].map(([, rule]) => rule),
      rules,
    );
    assert.match(
      importedYaml,
      /Plugins that are on in .*, and (?:\w+, )*NodeRestriction(?:, \w+)*\s+(?:# )?\(\/metrics\)/s,
    );
  });

  for (const row of requests)
    it(`an imported postern.yaml ${row.name}, as the plugins of the self-managed API server do`, async () => {
      const [wanted, actual] = await Promise.all([send(selfManaged, row), send(managed, row)]);
      assert.equal(wanted.at(-1)?.code, row.code, JSON.stringify(wanted));
      assert.deepEqual(actual, wanted);
    });
});
