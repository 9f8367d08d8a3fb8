/** A text without the keys in its URLs: `…/{cluster}.…/rule/phase`. Only a path's segment can be one, never a host. */
export const discreet = (text: string): string =>
  text.replace(/(?<=[^/]\/)([a-z0-9][-a-z0-9]{0,62})\.[\w-]{20,}/gi, "$1.…");
