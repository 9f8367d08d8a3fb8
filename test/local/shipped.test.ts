import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { schemaLine } from "../../infra/config/schemas.ts";
import { isOnInTarget, parseTarget } from "../../infra/import/targets.ts";
import { needs } from "../parts.ts";

// Tests the files of the last commit, so that rules which a developer adds or turns on break no test.
const cwd = fileURLToPath(new URL("../..", import.meta.url));
const runGit = (...words: string[]) => execFileSync("git", words, { cwd, encoding: "utf8" });

describe("a commit", await needs("git"), async () => {
  const catalogue = await readCatalogue();
  const config = runGit("show", "HEAD:postern.yaml");

  it("a commit has a postern.yaml that names its schema", () => assert.ok(config.startsWith(`${schemaLine}\n`)));

  it("a commit has a postern.yaml without rules for plugins that are on in managed clusters", () => {
    const managedClusters = ["eks-1.35", "gke-1.35", "aks-1.35"].map((name) => parseTarget(name));
    const plugins = Object.keys(parse(config).rules).flatMap((name) => {
      const { plugin } = catalogue.find((listed) => listed.name === name)?.rule.upstreamPlugin ?? {};
      return plugin === undefined ? [] : [plugin];
    });
    assert.ok(plugins.includes("AlwaysPullImages"), "there are rules that replace plugins");
    const onInManaged = plugins.filter((plugin) => managedClusters.some((target) => isOnInTarget(plugin, target)));
    assert.deepEqual(onInManaged, []);
  });

  it("a commit has a list of all rules in functions/README.md; npm run fix writes it", () => {
    const list = runGit("show", "HEAD:functions/README.md");
    const folders = [
      ...runGit("ls-tree", "-r", "--name-only", "HEAD", "functions").matchAll(/^functions\/([^/]+)\/rule\.ts$/gm),
    ];
    assert.ok(folders.length > 0);
    assert.deepEqual(
      folders.flatMap(([, name]) => (list.includes(`](${name}/README.md)`) ? [] : [name])),
      [],
    );
  });
});
