/** The heading of the section about the changes since the last release. */
const unreleasedHeading = "## Unreleased";

/** The section about a release in CHANGELOG.md. */
interface ReleaseNotes {
  date: string;
  text: string;
}

/** Returns the section about a version, with a heading such as `## 0.2.0 (2026-11-23)`; undefined if there is none. */
export const findReleaseNotes = (changelog: string, version: string): ReleaseNotes | undefined => {
  const [heading, text] = findSection(changelog, `## ${version} (`) ?? [];
  const [date] = /\d{4}-\d\d-\d\d(?=\)$)/.exec(heading ?? "") ?? [];
  return date === undefined || text === undefined ? undefined : { date, text };
};

/** Returns why the section "Unreleased" can't become the section of a release; undefined if it can. */
export const findUnreleasedSectionFault = (changelog: string): string | undefined => {
  const [, text] = findSection(changelog, unreleasedHeading) ?? [];
  if (text === undefined) return `CHANGELOG.md must have a section "${unreleasedHeading}"`;
  const hasLines = text.replace(/^#.*$/gm, "").trim() !== "";
  return hasLines ? undefined : `the section "${unreleasedHeading}" of CHANGELOG.md must have a line about a change`;
};

/** Makes the section "Unreleased" the section of this version, and adds a new, empty section "Unreleased" above it. */
export const closeChangelog = (changelog: string, version: string, date: string): string =>
  changelog.replace(new RegExp(`^${unreleasedHeading}$`, "m"), `${unreleasedHeading}\n\n## ${version} (${date})`);

/** Returns the heading and the text of the first section whose heading begins with `start`. */
const findSection = (changelog: string, start: string): [heading: string, text: string] | undefined => {
  const section = changelog.split(/^(?=## )/m).find((part) => part.startsWith(start));
  if (section === undefined) return undefined;
  const [heading = "", ...lines] = section.split("\n");
  return [heading, lines.join("\n").trim()];
};
