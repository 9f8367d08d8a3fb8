import { Complaint } from "../cli/complaint.ts";
import { parseYamlDocument, type YamlDocument } from "../cli/yaml-document.ts";

/** Parses the text of a postern.yaml. Throws a Complaint if it is no YAML or empty. */
export const parseConfigDocument = (text: string, name: string): YamlDocument => {
  const document = parseYamlDocument(text, name);
  // An interrupted save leaves an empty postern.yaml, which must not turn all rules off.
  if (document.value === null)
    throw new Complaint(`${name} is empty; it must name the rules that are on, or say "rules: {}" if none is`);
  return document;
};
