import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { adaptPage } from "./pages.ts";

const packaged = ["docs/a.md", "lib/rule.js", "lib/b/README.md", "lib/b/part.js", "functions/pod/crds", "infra/run.sh"];
const checkout = [
  "docs/a.md",
  "CONTRIBUTING.md",
  "test/a.test.ts",
  ".github/a.yml",
  "lib/b/part.test.ts",
  "biome.json",
];
const createPathExists = (files: readonly string[]) => (path: string) => files.includes(path);

const table: [it: string, page: string, before: string, after: string][] = [
  ["keeps a link to a page of the package", "docs/b.md", "[a](a.md#top)", "[a](a.md#top)"],
  ["keeps a link to an address", "docs/b.md", "[a](https://a.example/x)", "[a](https://a.example/x)"],
  ["keeps a link within the page", "docs/b.md", "[a](#top)", "[a](#top)"],
  ["links to the compiled file of a source", "docs/b.md", "[a](../lib/rule.ts)", "[a](../lib/rule.js)"],
  [
    "has no link to a file of the repository",
    "README.md",
    "see [how\nto help](CONTRIBUTING.md#tests).",
    "see how\nto help (in the repository).",
  ],
  ["marks a named file of the repository", "docs/b.md", "`test/a.test.ts`", "`test/a.test.ts` (in the repository)"],
  [
    "marks a file once that is named by a link",
    "docs/b.md",
    "[`.github/a.yml`](../.github/a.yml)",
    "`.github/a.yml` (in the repository)",
  ],
  ["names the compiled file of a source", "docs/b.md", "`lib/rule.ts` (`rule`)", "`lib/rule.js` (`rule`)"],
  ["reads a name from the folder of the page", "lib/b/README.md", "`part.ts`", "`part.js`"],
  [
    "marks a file that the page's folder lacks",
    "lib/b/README.md",
    "`part.test.ts`",
    "`part.test.ts` (in the repository)",
  ],
  ["leaves a file of a user's project", "docs/b.md", "`functions/mine/rule.ts`", "`functions/mine/rule.ts`"],
  ["leaves a file at the root, which a project has, too", "README.md", "`biome.json`", "`biome.json`"],
  [
    "has commands for a project's folder",
    "docs/b.md",
    "```sh\nkubectl apply -f functions/pod/crds\nbash ../postern/infra/run.sh lib/rule.ts\n```",
    "```sh\nkubectl apply -f node_modules/postern/functions/pod/crds\nbash ../postern/infra/run.sh lib/rule.ts\n```",
  ],
];

describe("a page of the package", () => {
  for (const [says, page, before, after] of table)
    it(says, () =>
      assert.equal(adaptPage(page, before, createPathExists(packaged), createPathExists(checkout)), after),
    );
});
