import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import type { Case } from "#lib/recording/recording.ts";
import { readCases } from "../../infra/catalogue/cases.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { chooseSixth } from "../choices.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { buildConfigOfEveryRule } from "../every-rule.ts";
import { type CaseChecker, openCaseServers, readAllCases } from "../parity/cases/cases.ts";
import {
  createTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveCatalogueForTests,
  waitUntilWebhooksCalled,
} from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Sends the cases of a sixth of the rules to a real API server. The cases of rules that reimplement a compiled-in
// plugin are also sent to API servers with this plugin. parity.test.ts compares another sixth.
const catalogue = await readCatalogue();
const chosenRules = chooseSixth(catalogue, { testedBy: "cases" });
/** The rules whose cases a test below changes. They are used even if they are not in the chosen sixth. */
const rulesWithChangedCases = ["deny-service-external-ips", "default-toleration-seconds"];

// This is not a unit test, because each new rule or case changes the table, and writing it takes an API server.
it("the table of cases in docs/background/parity.md has the number of cases of every rule", async () => {
  const page = await readFile(new URL("../../docs/background/parity.md", import.meta.url), "utf8");
  const [, table = ""] = page.split("<!-- Written by npm run parity -- --requests 0 --write. -->");
  const rows = [...table.matchAll(/^\| ([a-z-]+) \| (\d+) \|/gm)].map(([, name, count]) => [name, Number(count)]);
  const expectedRows = await Promise.all(
    catalogue.map(async (listed) => [listed.name, (await readCases(listed)).length]),
  );
  assert.deepEqual(rows, expectedRows, "npm run parity -- --requests 0 --write writes the table");
});

describe("the cases of rules, on a real API server", await needs("API server"), async () => {
  const rowsOfRules = await readAllCases(
    catalogue.filter((listed) => chosenRules.includes(listed) || rulesWithChangedCases.includes(listed.name)),
  );
  let servers: CaseChecker;

  before(async () => {
    const casesAndOutcomes = rowsOfRules.map(({ listed, cases, pluginCases }) => ({
      listed,
      cases: [...cases, ...pluginCases],
    }));
    servers = await openCaseServers(await requireBinaries(), casesAndOutcomes);
  });
  after(() => servers?.stop());

  for (const { listed, cases, pluginCases } of rowsOfRules) {
    it(`the cases of ${listed.name} get their stated outcomes, and the answers of the rule's plugin`, async (test) => {
      const { differences, asStated, pluginComparison, whyNotCompared } = await servers.check(listed, cases);
      for (const { name, reason } of pluginComparison?.leftOut ?? [])
        test.diagnostic(`not compared with the plugin: "${name}": ${reason}`);
      if (whyNotCompared !== undefined) test.diagnostic(whyNotCompared);
      assert.equal(differences.map(({ name, from, diff }) => `${name} (${from})\n${diff}`).join("\n"), "");
      // An older API server may not serve the kinds of newer plugins.
      assert.ok(asStated > 0 || whyNotCompared !== undefined);
      assert.ok(
        pluginComparison === undefined || pluginComparison.equal + Object.keys(pluginComparison.known).length > 0,
      );
    });
    if (pluginCases.length > 0)
      it(`cases of ${listed.name} that were recorded from a removed plugin get the recorded outcomes`, async () => {
        const { differences, notSent } = await servers.check(listed, pluginCases);
        assert.equal(differences.map(({ name, diff }) => `${name}\n${diff}`).join("\n"), "");
        assert.deepEqual(notSent, []);
      });
  }

  it("a case is reported if its outcome differs from the stated outcome", async () => {
    /**
     * Changes the first case of a rule. Returns the differences between the changed case and the API server's answer.
     */
    const checkChanged = async (rule: string, change: (entry: Case) => Case) => {
      const { listed, cases } = rowsOfRules.find(({ listed }) => listed.name === rule) ?? assert.fail();
      const { asStated, differences } = await servers.check(listed, cases.slice(0, 1).map(change));
      assert.equal(asStated, 0);
      return differences.map(({ diff }) => diff).join("\n");
    };
    const rule = "deny-service-external-ips";
    assert.match(
      await checkChanged(rule, (entry) => ({ ...entry, refused: "no" })),
      /^- .* request: no".*\n^\+ .*Use of external/m,
    );
    assert.match(
      await checkChanged(rule, ({ refused: _, ...entry }) => ({ ...entry, admitted: true })),
      /^- .*201,\n\+ .*403,$/m,
    );
    assert.match(await checkChanged(rule, (entry) => ({ ...entry, warnings: ["beware"] })), /^- .*"beware"$/m);
    const expectUnchanged = ({ becomes: _, ...entry }: Case): Case => ({ ...entry, becomes: entry.mutate ?? {} });
    assert.match(
      await checkChanged("default-toleration-seconds", expectUnchanged),
      /^\+ .*node.kubernetes.io\/not-ready/m,
    );
  });

  it("the API server accepts the webhook entries of every rule", async () => {
    const rules = buildConfigOfEveryRule(catalogue.map(({ name }) => name));
    const postern = await serveCatalogueForTests(JSON.stringify({ rules }));
    try {
      await createTestWebhookConfigurations(servers.admin, postern.manifests({ name: "everything" }), "?dryRun=All");
    } finally {
      await postern.stop();
    }
  });

  it("a pod of 3000 containers is sent to rules: matchConditions stay within the API server's cost limit", async () => {
    const postern = await serveCatalogueForTests(`rules:
      allowed-registries: { settings: { registries: [docker.io, ghcr.io, quay.io, registry.k8s.io] } }
      security-context-deny:`);
    try {
      await createTestWebhookConfigurations(
        servers.admin,
        extendWebhookTimeoutsForTests(postern.manifests({ name: "guarded" })),
      );
      const image = `docker.io/library/${"a".repeat(200)}:1`;
      const initContainers = Array.from({ length: 3000 }, (_, index) => ({ name: `i${index}`, image }));
      const create = (container: object) => {
        const spec = { initContainers, containers: [{ name: "a", image, ...container }] };
        const body = { apiVersion: "v1", kind: "Pod", metadata: { name: "large" }, spec };
        return servers.admin({ method: "POST", path: "/api/v1/namespaces/default/pods?dryRun=All", body });
      };
      await waitUntilWebhooksCalled(
        () => create({ image: "evil.example/x" }),
        () => postern.reports.length > 0,
      );
      for (const [container, refusal] of [
        [{ image: "evil.example/x" }, /evil.example/],
        [{ securityContext: { runAsUser: 0 } }, /RunAsUser is forbidden/],
      ] as const) {
        const { code, body } = await create(container);
        assert.equal(code, 403);
        assert.match(String(body.message), refusal);
      }
    } finally {
      await postern.stop();
    }
  });
});
