/** The heading of the section that collects the changes since the last release. */
const openHeading = "## Unreleased";

/** A closed section of CHANGELOG.md. */
interface ReleaseNotes {
  date: string;
  text: string;
}

/** Returns the section about a released version; undefined if there is none. */
export const findReleaseNotes = (changelog: string, version: string): ReleaseNotes | undefined => {
  const [heading, text] = findSection(changelog, `## ${version} (`) ?? [];
  const [date] = /\d{4}-\d\d-\d\d(?=\)$)/.exec(heading ?? "") ?? [];
  return date === undefined || text === undefined ? undefined : { date, text };
};

/** Returns the reason why the open section can't be closed; undefined if it can. */
export const explainUnclosable = (changelog: string): string | undefined => {
  const [, text] = findSection(changelog, openHeading) ?? [];
  if (text === undefined) return `CHANGELOG.md must have a section "${openHeading}"`;
  const hasLines = text.replace(/^#.*$/gm, "").trim() !== "";
  return hasLines ? undefined : `the section "${openHeading}" of CHANGELOG.md must have a line about a change`;
};

/** Returns the changelog with its open section as the one of this version, and a new, empty open section above it. */
export const closeChangelog = (changelog: string, version: string, date: string): string =>
  changelog.replace(new RegExp(`^${openHeading}$`, "m"), `${openHeading}\n\n## ${version} (${date})`);

/** Returns the heading and the text of the first section whose heading begins like this. */
const findSection = (changelog: string, start: string): [heading: string, text: string] | undefined => {
  const section = changelog.split(/^(?=## )/m).find((part) => part.startsWith(start));
  if (section === undefined) return undefined;
  const [heading = "", ...lines] = section.split("\n");
  return [heading, lines.join("\n").trim()];
};
