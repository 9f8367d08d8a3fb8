import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { runProgram } from "../checkout.ts";
import { choosePluginRules } from "../choices.ts";
import { listPlugins, newestMinor, requireBinaries } from "../control-plane/binaries.ts";
import { measureParity } from "../parity/parity.ts";
import { listRulesThatReplacePlugins } from "../parity/plugins.ts";
import { needs, needsApiServer } from "../parts.ts";

// Compares a sixth of the ports (rules that reimplement a plugin) with their plugins by generated requests, on the
// newest minor of Kubernetes and on one other minor in turn. cases.test.ts sends the cases of another sixth.
// `npm run parity -- --minor 1.33,1.37` compares all ports on each of these minors.
const needsApiserver = await needs("API server");
const ports = listRulesThatReplacePlugins(await readCatalogue());

describe("npm run parity", () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-parity-"));
  });
  after(() => rm(folder, { recursive: true }));

  const runParity = (words: string[], variables: Record<string, string> = {}) => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const program = fileURLToPath(new URL("../parity/run.ts", import.meta.url));
    return runProgram([program, ...words], { env: { ...env, ...variables } });
  };

  it("npm run parity exits with 3 if the API server is missing", async () => {
    const { code, stdout, stderr } = await runParity([], { XDG_CACHE_HOME: folder });
    assert.match(stderr, /^kube-apiserver 1\.\d+ is not here: npm run cluster builds it\n$/);
    assert.deepEqual([code, stdout], [3, ""]);
  });

  it("npm run parity refuses an unknown rule", async () => {
    const { code, stdout, stderr } = await runParity(["no-such-rule"]);
    assert.equal(stderr, 'there is no rule "no-such-rule"; postern rules lists them\n');
    assert.deepEqual([code, stdout], [2, ""]);
  });

  it("npm run parity refuses --write with settings or requests other than docs/background/parity.md has", async () => {
    const refused: [words: string[], sentence: RegExp][] = [
      [["--config", "postern.yaml"], /^--write needs the settings of the plugins; leave out --config\n$/],
      [
        ["always-admit", "--requests", "5"],
        /^--write: docs\/background\/parity.md has the results of \d+ requests of the seed \d+; /,
      ],
    ];
    for (const [words, sentence] of refused) {
      const { code, stderr } = await runParity([...words, "--write"]);
      assert.match(stderr, sentence);
      assert.equal(code, 2);
    }
  });

  it(
    "prints the shortest request that plugin and rule answer differently, if they have different settings",
    needsApiserver,
    async () => {
      const config = join(folder, "other.yaml");
      await writeFile(config, "rules: { default-toleration-seconds: { settings: { unreachableSeconds: 7 } } }\n");
      const sizes = ["--minor", newestMinor, "--seed", "7", "--requests", "30"];
      const words = ["default-toleration-seconds", ...sizes, "--config", config];
      const { code, stdout, stderr } = await runParity(words);
      assert.equal(code, 1, stdout + stderr);
      assert.match(stdout, /\nRULE .* SAVED\ndefault-toleration-seconds +30 /);
      const [, firstDifference = ""] = /\n\n(default-toleration-seconds differs[\s\S]*?)\n\n/.exec(stdout) ?? [];
      const [sentence, call = "", ...rest] = firstDifference.split("\n");
      assert.equal(sentence, "default-toleration-seconds differs from upstream (-) in the answer to the last of");
      assert.match(call, /^ {2}(POST|PATCH) \/api\/v1\/namespaces\/default\/pods\S* as admin /);
      assert.ok(call.length < 400, call);
      assert.ok(rest.includes('-           "tolerationSeconds": 300'), firstDifference);
      assert.ok(rest.includes('+           "tolerationSeconds": 7'), firstDifference);
      assert.equal(rest.at(-1), `To repeat: npm run parity -- ${words.join(" ")}`);
    },
  );
});

/** Each seed generates other requests. */
const seed = Number(process.env.POSTERN_SEED ?? randomInt(2 ** 31));
/** The number of requests for each rule. `npm run parity -- --requests 1000` sends more. */
const requests = 40;

for (const [minor, chosenPorts] of choosePluginRules(ports))
  describe(`rules in Kubernetes ${minor}`, { ...(await needsApiServer(minor)), concurrency: 2 }, async () => {
    const plugins = await requireBinaries(minor).then(listPlugins, () => undefined);

    for (const port of chosenPorts) {
      const { plugin } = port.rule.upstreamPlugin;
      const skip = plugins?.all.includes(plugin) ? false : `Kubernetes ${minor} has no ${plugin}`;
      it(`the rule ${port.name} answers as the plugin ${plugin} does`, { skip }, async (context) => {
        context.diagnostic(`POSTERN_SEED=${seed} repeats this run`);
        const result = await measureParity(port, await requireBinaries(minor), { requests, seed });
        const { unexplained, failedConditions, differences, equal, known } = result;
        const details = differences.map(({ calls, diff }) => `${calls.join("\n")}\n${diff}`).join("\n\n");
        assert.deepEqual(failedConditions, {});
        assert.equal(unexplained, 0, `POSTERN_SEED=${seed} repeats this run\n${details}`);
        assert.equal(
          Object.values(known).reduce((sum, count) => sum + count, equal),
          requests,
        );
      });
    }
  });

it("the comparison counts a matchCondition that fails as an unexplained difference", needsApiserver, async () => {
  const port = ports.find(({ name }) => name === "deny-service-external-ips");
  assert.ok(port);
  const matchConditions = { fails: 'object.metadata.nobody == "a"' };
  const { unexplained, failedConditions } = await measureParity(
    { ...port, rule: { ...port.rule, matchConditions } },
    await requireBinaries(),
    { requests: 20, seed },
  );
  const [[webhook, count = 0] = []] = Object.entries(failedConditions);
  assert.equal(webhook, "deny-service-external-ips.postern.dev");
  // Each failed evaluation counts as unexplained, and so does each answer that differs because of it.
  assert.ok(count > 0 && unexplained > count);
});
