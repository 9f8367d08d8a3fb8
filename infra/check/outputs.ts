import { Complaint } from "../complaint.ts";

/** A form in which findings are told, and the file that it goes to; standard output where there is none. */
export interface Output {
  form: string;
  file?: string;
}

/** What `-o text -o sarif=out.sarif` wants; text alone where nothing is said. */
export const outputsOf = (said: readonly string[], forms: readonly string[]): Output[] => {
  const outputs = said.map((one): Output => {
    const [, form = "", file] = /^([^=]*)(?:=(.*))?$/s.exec(one) ?? [];
    if (!forms.includes(form))
      throw new Complaint(`--output takes ${forms.join(", ")}, each with =FILE behind it or not, not "${one}"`);
    if (file === "") throw new Complaint(`--output ${form}= must name a file`);
    return { form, ...(file !== undefined && { file }) };
  });
  const printed = outputs.filter(({ file, form }) => file === undefined && form !== "text" && form !== "github");
  if (
    printed.length > 1 ||
    (printed.length === 1 && outputs.some(({ file }, index) => file === undefined && outputs[index] !== printed[0]))
  )
    throw new Complaint(
      `${outputs
        .filter(({ file }) => file === undefined)
        .map(({ form }) => form)
        .join(" and ")} can't share standard output; give one a file, as in -o ${printed[0]?.form}=FILE`,
    );
  // Files are for machines; somebody may look on.
  return outputs.some(({ file }) => file === undefined) ? outputs : [{ form: "text" }, ...outputs];
};
