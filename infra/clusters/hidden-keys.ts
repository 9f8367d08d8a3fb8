/** Hides the keys in URLs, `…/{cluster}.…/rule/phase`. Only a path segment can have a key, never a host. */
export const discreet = (text: string): string =>
  text.replace(/(?<=[^/]\/)([a-z0-9][-a-z0-9]{0,62})\.[\w-]{20,}/gi, "$1.…");
