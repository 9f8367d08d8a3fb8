import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { closeChangelog, findReleaseNotes, findUnreleasedSectionFault } from "./changelog.ts";

const changelog = `# Changelog

## Unreleased

- A summary.

### Added

- A verb.

## 0.1.0 (2026-01-31)

- The first one.
`;

/** A changelog, and the reason why its open section can't be closed. */
type UnclosableCase = [name: string, changelog: string, reason: string | undefined];

describe("the changelog", () => {
  it("the changelog gets a new, empty section Unreleased above the section of the release", () => {
    const closed = closeChangelog(changelog, "0.2.0", "2026-11-23");
    assert.equal(closed, changelog.replace("## Unreleased", "## Unreleased\n\n## 0.2.0 (2026-11-23)"));
    assert.deepEqual(findReleaseNotes(closed, "0.2.0"), {
      date: "2026-11-23",
      text: "- A summary.\n\n### Added\n\n- A verb.",
    });
    assert.deepEqual(findReleaseNotes(closed, "0.1.0"), { date: "2026-01-31", text: "- The first one." });
    assert.equal(findReleaseNotes(closed, "0.1"), undefined);
    assert.equal(
      findUnreleasedSectionFault(closed),
      'the section "## Unreleased" of CHANGELOG.md must have a line about a change',
    );
  });

  const cases: UnclosableCase[] = [
    ["has changes", changelog, undefined],
    ["ends with its open section", "# Changelog\n\n## Unreleased\n- A verb.", undefined],
    ["has no open section", "# Changelog\n", 'CHANGELOG.md must have a section "## Unreleased"'],
    [
      "has only headings",
      "# Changelog\n\n## Unreleased\n\n### Added\n\n## 0.1.0 (2026-01-31)\n\n- The first one.\n",
      'the section "## Unreleased" of CHANGELOG.md must have a line about a change',
    ],
  ];
  for (const [name, text, reason] of cases)
    it(`${reason === undefined ? "can" : "can't"} be closed if it ${name}`, () =>
      assert.equal(findUnreleasedSectionFault(text), reason));
});
