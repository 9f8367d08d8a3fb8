import "../infra/testing/rule-tests.ts";
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { Phase } from "#lib/rule.ts";
import { buildCatalogueReadme, buildChoicesPage } from "../infra/catalogue/readme.ts";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import { parseConfig } from "../infra/project/project.ts";
import { createListedEndpoint, listServedRulesAndGroups } from "../infra/project/served.ts";
import { buildPodReview } from "./requests.ts";

// Tests Postern's own catalogue: the tests of every rule, and more.
const catalogue = await readCatalogue();

it("the catalogue has an up-to-date list of rules in functions/README.md, which npm run fix writes", async () => {
  const page = await readFile(new URL("../functions/README.md", import.meta.url), "utf8");
  // Rules with an upstream plugin are always Postern's own, and must be listed. Other rules may be a developer's, so
  // they are compared only if the page has them. test/local/shipped.test.ts finds Postern's rules that the page lacks.
  const comparedRules = catalogue.filter(
    ({ name, rule }) => rule.upstreamPlugin || page.includes(`](${name}/README.md)`),
  );
  const { present: currentPage, wanted: wantedPage } = await buildCatalogueReadme(comparedRules);
  assert.equal(currentPage, wantedPage);
});

it("the catalogue has up-to-date tables in docs/how-to/choose-rules.md, which npm run fix writes", async () => {
  const { present: currentPage, wanted: wantedPage } = await buildChoicesPage(catalogue);
  assert.equal(currentPage, wantedPage);
  assert.ok(currentPage.includes("<!-- End of the table of managed clusters. -->"));
});

// JavaScript allows about 120,000 arguments in a call, so no code may spread all elements of an object's list into one.
const expectedAnswers: [rule: string, phase: Phase, expected: string][] = [
  ["service-account", "mutate", "150002 changes"],
  ["allowed-registries", "validate", "Forbidden"],
  ["pod-defaults", "mutate", "150001 changes"],
];
describe("a pod with 150,000 containers", () => {
  const config = parseConfig(
    `rules:
  service-account:
  always-pull-images:
  default-toleration-seconds:
  allowed-registries: { settings: { registries: [registry.example.com] } }
groups:
  pod-defaults: [always-pull-images, default-toleration-seconds]`,
    catalogue,
  );
  const metadata = { name: "default", namespace: "default" };
  const needs = { objects: [{ apiVersion: "v1", kind: "ServiceAccount", metadata }] };
  const containers = Array.from({ length: 150_000 }, (_, index) => ({ name: `c${index}`, image: "app" }));
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { namespace: "default" }, spec: { containers } };
  const review = buildPodReview({ namespace: "default", userInfo: {}, object: pod });
  for (const [name, phase, expected] of expectedAnswers)
    it(`a pod with 150,000 containers gets an answer from the rule ${name}`, async () => {
      const listed = listServedRulesAndGroups(config, catalogue).find(
        (one) => one.name === name && one.phases.includes(phase),
      );
      assert.ok(listed);
      const { evaluateReview } = createListedEndpoint(config, listed, {
        publicKeys: "",
        openCapabilities: createUnconnectedCapabilities,
        writeLogLine: () => {},
      });
      const capabilities = createRecordedCapabilities(needs);
      const deadline = Date.now() + 600_000;
      const { response, status: failure } = await evaluateReview({
        phase,
        cluster: "local",
        review,
        capabilities,
        deadline,
      });
      const answer = response ?? failure;
      const { patch = "", status } = Object(Object(answer).response);
      const changes = patch && `${JSON.parse(Buffer.from(patch, "base64").toString()).length} changes`;
      assert.equal(changes || (status ?? Object(answer)).reason, expected, JSON.stringify(answer).slice(0, 200));
    });
});
