/**
 * Returns a page with a text between its comments about a list, which `npm run fix` writes; a page without the comments is
 * returned as it is.
 */
export const replaceList = (page: string, list: string, text: string): string => {
  const [begin, end] = [`<!-- The ${list} is written by npm run fix. -->`, `<!-- End of the ${list}. -->`];
  const [before, rest] = page.split(begin);
  if (rest === undefined) return page;
  const [, after] = rest.split(end);
  return `${before}${begin}\n\n${text}\n\n${end}${after ?? "\n"}`;
};
