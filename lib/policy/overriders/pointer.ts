import { parsePointer } from "../../json.ts";

/** The keys that a JSON pointer names, from the root; none for the root itself. */
export const stepsOf = (pointer: string): string[] => {
  if (pointer !== "" && !pointer.startsWith("/"))
    throw new Error(`the path ${JSON.stringify(pointer)} must begin with a slash`);
  return parsePointer(pointer);
};
