/**
 * Replaces a generated list in a page: what is between the comments that begin and end the list. A page without these
 * comments stays as it is.
 */
export const replaceList = (page: string, list: string, text: string): string => {
  const [begin, end] = [`<!-- The ${list} is written by npm run fix. -->`, `<!-- End of the ${list}. -->`];
  const [before, rest] = page.split(begin);
  if (rest === undefined) return page;
  const [, after] = rest.split(end);
  return `${before}${begin}\n\n${text}\n\n${end}${after ?? "\n"}`;
};
