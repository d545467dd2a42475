/* ---- images, audio, video and files of a turn: data of this page, or named where they did not fit ---- */
const SHOWN = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/,
  PLAYED = /^(audio|video)\/(wav|x-wav|mpeg|mp3|mp4|ogg|webm|flac|aac)$/;
const sizeOf = bytes =>
  bytes === null
    ? "of unknown size"
    : bytes < 1024
      ? `${bytes} bytes`
      : bytes < 1048576
        ? `${(bytes / 1024).toFixed(0)} KB`
        : `${(bytes / 1048576).toFixed(1)} MB`;
const mediaOf = (turn, places) =>
  ((turn && turn.media) || []).filter(([place]) => places.includes(place)).map(([, ...item]) => medium(...item));
function medium(type, file, digest, bytes) {
  const kind = type.split(";")[0].trim().toLowerCase(),
    label = [file, kind || "a file", bytes === null ? "" : sizeOf(bytes)].filter(Boolean).join(", "),
    known = /^[0-9a-f]{64}$/.test(digest);
  if (!known) return el("p", { class: "medium dim" }, label, ": ", el("code", null, digest));
  if (!media[digest])
    return el(
      "p",
      { class: "medium dim" },
      label,
      bytes === null ? ": not found, it was " : ": left out of this page, it is ",
      el("code", null, `blobs/${digest}`),
    );
  const source = `data:${kind};base64,${media[digest]}`;
  if (SHOWN.test(kind)) return el("p", { class: "medium" }, el("img", { src: source, alt: label }));
  if (PLAYED.test(kind))
    return el(
      "p",
      { class: "medium" },
      el(kind.startsWith("audio") ? "audio" : "video", { src: source, controls: true, "aria-label": label }),
      el("small", null, label),
    );
  const save = el("a", { class: "button", href: "#", download: file || digest.slice(0, 12) }, `Save ${label}`);
  save.addEventListener("click", () => {
    const raw = Uint8Array.from(atob(media[digest]), letter => letter.charCodeAt(0));
    /* never shown: a page of this type could run here */
    save.href = URL.createObjectURL(new Blob([raw], { type: "application/octet-stream" }));
  });
  return el("p", { class: "medium" }, save);
}
